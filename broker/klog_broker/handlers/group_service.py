"""Connects the group coordinator to its broker: settings, leaderships, and FindCoordinator."""

from klog_broker.config import BrokerConfig
from klog_broker.coordinator.group.classic.group_machine import GroupSettings
from klog_broker.coordinator.group.coordinator import (
    CONSUMER_OFFSETS,
    CoordinatorSettings,
    GroupCoordinator,
)
from klog_broker.coordinator.loading import KernelWalk
from klog_broker.coordinator.runtime import RuntimeServices
from klog_broker.handlers.context import BrokerServices, CoordinatorAnswer, RequestContext
from klog_broker.log.record_checks import KernelChecks
from klog_broker.metadata.image import NO_BROKER, MetadataImage, Topic
from klog_broker.replication.leader_state_log import LeaderStateLog
from klog_broker.replication.partition import Leader
from klog_broker.runtime.slices import Slices
from klog_broker.topics.changing import create_topics
from klog_broker.topics.internal import offsets_topic_configs
from klog_broker.topics.planning import plan_new_topic
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.compression import Codec

GROUP_KEY_TYPE = 0


def coordinator_settings(config: BrokerConfig) -> CoordinatorSettings:
    """The broker's group.* and offsets.* settings."""
    return CoordinatorSettings(
        group=GroupSettings(
            initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
            max_size=config["group.max.size"],
        ),
        min_session_timeout_ms=config["group.min.session.timeout.ms"],
        max_session_timeout_ms=config["group.max.session.timeout.ms"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        commit_timeout_ms=config["offsets.commit.timeout.ms"],
        retention_ms=config["offsets.retention.minutes"] * 60_000,
        retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
        codec=Codec(config["offsets.topic.compression.codec"]),
    )


def start_groups(broker: BrokerServices) -> GroupCoordinator:
    """Make the coordinator; it begins to load the partitions of ``__consumer_offsets`` that this
    broker leads."""

    metadata = broker.metadata
    seen_image: MetadataImage | None = None
    count: int | None = None

    def num_partitions() -> int | None:
        """Asked with every request, and looked up once an image."""
        nonlocal seen_image, count
        image = metadata.image
        if image is not seen_image:
            seen_image, topic = image, image.topic(CONSUMER_OFFSETS)
            count = None if topic is None else len(topic.partitions)
        return count

    groups = GroupCoordinator(
        coordinator_settings(broker.config),
        RuntimeServices(
            loop=broker.loop,
            purgatory=broker.purgatory,
            clock=broker.clock,
            helpers=broker.helpers,
            slices=Slices(broker.loop),
            new_walk=lambda: KernelWalk() if isinstance(broker.logs.checks, KernelChecks) else None,
        ),
        new_member_id=lambda client_id: f"{client_id}-{broker.chance.uuid()}",
        num_partitions=num_partitions,
    )
    finder = _Finder(broker, groups)

    def lead(leader: Leader) -> None:
        if leader.topic_partition.topic == CONSUMER_OFFSETS:
            groups.on_lead(LeaderStateLog(leader, broker.clock))

    def resign(topic_partition: TopicPartition) -> None:
        if topic_partition.topic == CONSUMER_OFFSETS:
            groups.on_resign(topic_partition)

    for leader in broker.replicas.led.values():
        lead(leader)
    broker.replicas.on_lead.append(lead)
    broker.replicas.on_resign.append(resign)
    broker.find_coordinator[GROUP_KEY_TYPE] = finder.find
    broker.on_topic_deleted.append(groups.forget_topic)
    return groups


class _Finder:
    """Answers FindCoordinator for groups; the first request creates ``__consumer_offsets``."""

    def __init__(self, broker: BrokerServices, groups: GroupCoordinator) -> None:
        self._broker = broker
        self._groups = groups
        self._is_creating = False

    def find(self, group_id: str, context: RequestContext) -> CoordinatorAnswer:
        """This broker, once the topic exists; until then COORDINATOR_NOT_AVAILABLE (retriable).

        While the group's shard loads, this broker is the answer, too: the shard itself answers
        requests with COORDINATOR_LOAD_IN_PROGRESS.
        """
        if not group_id:
            return _none(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        topic = self._broker.metadata.image.topic(CONSUMER_OFFSETS)
        if topic is None:
            return self._create_topic()
        if self._groups.find(group_id) is ErrorCode.NOT_COORDINATOR:
            text = f"the group's {CONSUMER_OFFSETS} partition is offline, damaged or not made yet"
            return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        endpoint = self._broker.advertised[context.listener]
        return CoordinatorAnswer(
            ErrorCode.NONE, self._broker.broker_id, endpoint.host, endpoint.port, None
        )

    def _create_topic(self) -> CoordinatorAnswer:
        answer = _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} is being created")
        if self._is_creating:
            return answer
        config = self._broker.config
        factor = config["offsets.topic.replication.factor"]
        try:
            planned = plan_new_topic(
                self._broker,
                CONSUMER_OFFSETS,
                num_partitions=config["offsets.topic.num.partitions"],
                # Never more replicas than brokers, as docs/configuration.md says.
                replication_factor=min(factor, len(self._broker.metadata.image.brokers)),
                configs=offsets_topic_configs(config),
            )
        except BrokerError as error:
            return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.text or error.code.message)
        self._is_creating = True
        create_topics(self._broker, [planned], self._created)
        return answer

    def _created(self, _: list[Topic | BrokerError]) -> None:
        """Created or not: the next request finds the topic, or tries again."""
        self._is_creating = False


def _none(code: ErrorCode, message: str) -> CoordinatorAnswer:
    return CoordinatorAnswer(code, NO_BROKER, "", -1, message)
