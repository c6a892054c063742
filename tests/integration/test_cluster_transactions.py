"""klog's transactional producer on three brokers: partitions, ids and groups are led by others.

The same cases as on one broker, and a broker that is away while a transaction ends.
"""

from collections.abc import Callable, Iterator

import pytest

from klog_broker.coordinator.hashing import partition_for_key
from pyspark_klog.client.admin.groups import CommittedOffset
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.errors import TopicMissing
from pyspark_klog.client.transactions.blocking_driver import transaction_version
from pyspark_klog.ids import TopicPartition
from pyspark_klog.testing import KlogCluster
from tests.support.client.cases import client_of
from tests.support.client.transaction_cases import (
    CASES,
    committed,
    new_id,
    producer_of,
    put,
    read_committed,
    stable_offset,
)
from tests.support.eventually import eventually
from tests.support.spark.sink_commit_cases import CASES as COMMITS
from tests.support.spark.sink_task_cases import CASES as TASKS
from tests.support.spark.sink_workers import own_caches

SESSION_MS = 3_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[KlogCluster]:
    settings = {
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": 200,
        "zookeeper_session_timeout_ms": SESSION_MS,
        "offsets_topic_num_partitions": 6,
        "transaction_state_log_num_partitions": 6,
    }
    with KlogCluster(**settings) as started:
        yield started


def leaders(cluster: KlogCluster, topic: str) -> dict[int, int]:
    with Admin(cluster.bootstrap_servers) as admin:
        found = admin.describe_topics()[topic].partitions
    return {number: each.leader for number, each in found.items()}


def until_read(servers: str, partition: TopicPartition, value: str) -> None:
    def is_last() -> bool:
        try:
            return read_committed(servers, partition)[-1:] == [value]
        except TopicMissing:
            return False  # a broker that has just come back does not know the topic yet

    eventually(is_last, 60, f"{value!r} to be committed in {partition}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_transactions(cluster: KlogCluster, case: Callable[[str], None]) -> None:
    case(cluster.bootstrap_servers)


def test_clients_take_the_older_protocol(cluster: KlogCluster) -> None:
    with client_of(cluster.bootstrap_servers) as client:
        client.link_to_any(client.deadline())
        assert transaction_version(client) == (0, 0), "epoch and level"


@pytest.mark.parametrize("case", [*TASKS, *COMMITS], ids=lambda case: case.__name__)
def test_the_exactly_once_sink(
    cluster: KlogCluster, case: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in own_caches(monkeypatch):
        case(cluster.bootstrap_servers)


def test_an_unavailable_leader_gets_its_markers_when_it_is_back(cluster: KlogCluster) -> None:
    """Readers of the other partitions see the transaction at once."""
    servers, topic = cluster.bootstrap_servers, "away"
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, 3, 1, {"retention.ms": "-1"})])
    led = leaders(cluster, topic)
    assert set(led.values()) == {1, 2, 3}
    with producer_of(servers):
        coordinators = leaders(cluster, "__transaction_state")
    for number, away in led.items():
        ids = (new_id() for _ in range(1_000))
        transactional_id = next(
            each for each in ids if coordinators[partition_for_key(each, len(coordinators))] != away
        )
        value = f"without-{away}"
        with producer_of(servers, transactional_id) as producer:
            producer.begin_transaction()
            for partition in led:
                put(producer, TopicPartition(topic, partition), value)
            producer.flush()
            cluster.broker(away).kill()
            producer.commit_transaction()
        others = [TopicPartition(topic, each) for each in led if each != number]
        for partition in others:
            assert committed(servers, partition)[-1] == value
        cluster.broker(away).start()

        until_read(servers, TopicPartition(topic, number), value)


def test_ids_and_groups_move_when_their_broker_is_killed(cluster: KlogCluster) -> None:
    """The next coordinator knows the acknowledged requests: a commit ends as decided, and its
    offsets count."""
    servers, topic, group = cluster.bootstrap_servers, "moved", "moved-group"
    with Admin(servers) as admin:
        settings = {"retention.ms": "-1", "min.insync.replicas": "2"}
        admin.create_topics([NewTopic(topic, 3, 3, settings)])
    partitions = [TopicPartition(topic, number) for number in range(3)]
    transactional_id = new_id()
    for round_number in range(3):
        values = [f"{round_number}-{each}" for each in "ab"]
        with producer_of(servers, transactional_id) as producer:
            producer.begin_transaction()
            for partition in partitions:
                put(producer, partition, *values)
            position = CommittedOffset(100 + round_number)
            producer.send_offsets_to_transaction({partitions[0]: position}, group)
            producer.commit_transaction()
        coordinators = leaders(cluster, "__transaction_state")
        killed = coordinators[partition_for_key(transactional_id, len(coordinators))]
        cluster.broker(killed).kill()
        try:
            for partition in partitions:
                until_read(servers, partition, values[-1])
            assert stable_offset(servers, group, partitions[0]) == position
        finally:
            cluster.broker(killed).start()
