"""ZooKeeper's znodes against those that Apache Kafka 3.9.1 writes and reads there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.znodes.admin import (
    decode_log_dir_event,
    decode_preferred_replica_election,
    decode_reassignment,
)
from pyspark_klog.znodes.brokers import BrokerRegistration, Endpoint, VersionRange, decode_broker
from pyspark_klog.znodes.cluster import (
    ControllerRegistration,
    FinalizedFeatures,
    ProducerIdBlock,
    decode_cluster_id,
    decode_controller,
    decode_controller_epoch,
    decode_features,
    decode_producer_id_block,
)
from pyspark_klog.znodes.configs import EntityName, config_path, decode_config
from pyspark_klog.znodes.consumers import decode_offset, offset_path
from pyspark_klog.znodes.data import ZnodeError, encode_uuid
from pyspark_klog.znodes.paths import PERSISTENT, delete_topic_path
from pyspark_klog.znodes.topics import (
    LeaderRecoveryState,
    PartitionAssignment,
    PartitionState,
    TopicAssignment,
    decode_partition_state,
    decode_topic,
)
from tests.support.znodes.cases import codec

GOLDEN = {
    name: json.loads((Path(__file__).parent / f"znodes/{name}.json").read_text(encoding="utf-8"))
    for name in ("cluster", "read", "written")
}
CLUSTER = {row["path"]: row["data"].encode() for row in GOLDEN["cluster"]["znodes"]}
WRITTEN = {row["path"]: row["data"].encode() for row in GOLDEN["written"]["znodes"]}
READ = [(row["kind"], row["data"], row["kafka"]) for row in GOLDEN["read"]["znodes"]]

TOPICS = ("orders", "moving", "going", "lone")
ORDERS_0, FLIGHTS_3 = TopicPartition("orders", 0), TopicPartition("flights", 3)
_PLAIN = Endpoint("PLAINTEXT", "::1", 9092, "PLAINTEXT")
_TLS = Endpoint("SSL", "kafka.example", 9093, "SSL")
_MOVING = {0: PartitionAssignment((1, 2, 3), (3,), (1,)), 1: PartitionAssignment((1, 2))}


def _timestamp(path: str) -> int:
    return int(json.loads(WRITTEN[path])["timestamp"])


def _broker(number: int, *endpoints: Endpoint, **more: Any) -> tuple[str, BrokerRegistration]:
    path = f"/brokers/ids/{number}"
    return path, BrokerRegistration(endpoints, _timestamp(path), **more)


EXPECTED = dict(
    [
        _broker(2, _PLAIN, _TLS, jmx_port=1234),
        _broker(4, _PLAIN, _TLS, rack="rack-a", jmx_port=1234),
        _broker(
            5,
            _PLAIN,
            _TLS,
            rack="rack-a",
            jmx_port=1234,
            features={"a.version": VersionRange(1, 3)},
        ),
        _broker(6, _TLS),
        _broker(
            7,
            Endpoint("PLAINTEXT", None, 9092, "PLAINTEXT"),
            rack='é\x01\x1f\x7f\u2028"/\\\t\U0001f600',
        ),
    ]
) | {
    "/brokers/topics/orders": TopicAssignment(UUID(int=(1 << 64) + 2), _MOVING),
    "/brokers/topics/no-id": TopicAssignment(None, _MOVING),
    "/brokers/topics/many": TopicAssignment(
        UUID(int=(1 << 128) - 2), {number: PartitionAssignment((1,)) for number in range(14)}
    ),
    "/brokers/topics/orders/partitions/0/state": PartitionState(
        1, 1, (1,), 5, LeaderRecoveryState.RECOVERING
    ),
    "/admin/reassign_partitions": {ORDERS_0: (1, 2), FLIGHTS_3: (2,)},
    "/admin/preferred_replica_election": (ORDERS_0, FLIGHTS_3),
    "/isr_change_notification/isr_change_0000000007": (ORDERS_0, FLIGHTS_3),
    "/log_dir_event_notification/log_dir_event_0000000007": 3,
    "/config/topics/orders": {"a": '\x01\t\b\f\n\r/\\"é', "b": "1"},
    "/config/changes/config_change_0000000007": (
        EntityName("users", None),
        EntityName("clients", "a*"),
    ),
    "/controller": ControllerRegistration(3, 1700000000123),
    "/controller_epoch": 12,
    "/cluster/id": "AAECAwQFBgcICQoLDA0ODw",
    "/latest_producer_id_block": ProducerIdBlock(3, 1000, 1999),
    "/consumers/g/offsets/orders/3": 1234567890123,
}


def test_what_kafkas_classes_write_is_known_here() -> None:
    assert EXPECTED.keys() == WRITTEN.keys()


@pytest.mark.parametrize("path", WRITTEN)
def test_a_znode_of_kafkas_classes_means_the_same_both_ways(path: str) -> None:
    both = codec(path)
    assert both.decode(WRITTEN[path]) == EXPECTED[path]
    # Brokers 2 and 4 have the versions of their numbers; klog writes the newest.
    if path not in ("/brokers/ids/2", "/brokers/ids/4"):
        assert both.encode(both.decode(WRITTEN[path])) == WRITTEN[path]


@pytest.mark.parametrize("path", [path for path, data in CLUSTER.items() if data])
def test_a_znode_of_a_running_cluster_is_the_same_bytes_again(path: str) -> None:
    both = codec(path)
    assert both.encode(both.decode(CLUSTER[path])) == CLUSTER[path]


def test_znodes_without_data_are_those_that_klog_makes_too() -> None:
    empty = {path for path, data in CLUSTER.items() if not data}
    assert empty - {delete_topic_path("going")} <= set(PERSISTENT)
    assert delete_topic_path("going") in empty


def test_a_running_clusters_znodes_say_what_was_done_to_it() -> None:
    moving = decode_topic("moving", CLUSTER["/brokers/topics/moving"])
    assert moving.partitions == {0: PartitionAssignment((2, 0, 1), (2,), (1,))}
    lone = TopicPartition("lone", 0)
    state = decode_partition_state(lone, CLUSTER["/brokers/topics/lone/partitions/0/state"])
    assert (state.leader, state.isr, state.leader_epoch) == (-1, (2,), 1)
    position = offset_path("a group", TopicPartition("orders", 3))
    assert decode_offset(position, CLUSTER[position]) == 1
    ids = {decode_topic(each, CLUSTER[f"/brokers/topics/{each}"]).topic_id for each in TOPICS}
    assert len(ids) == len(TOPICS) and None not in ids
    brokers = [decode_broker(each, CLUSTER[f"/brokers/ids/{each}"]) for each in range(3)]
    assert [each.rack for each in brokers] == ["rack-a", 'rack "b"', "räck \U0001f600"]


@pytest.mark.parametrize(
    ("names", "config"),
    [
        ([("topics", "orders")], {"cleanup.policy": "compact", "retention.ms": "1000000"}),
        ([("brokers", None)], {"log.cleaner.threads": "2"}),
        ([("brokers", "1")], {"log.cleaner.backoff.ms": "1000"}),
        ([("users", "CN=a b*é+/%~"), ("clients", None)], {"consumer_byte_rate": "1000000"}),
        ([("clients", "a/b")], {"request_percentage": "150.5"}),
        ([("ips", "127.0.0.9")], {"connection_creation_rate": "100"}),
    ],
)
def test_settings_are_where_kafka_has_them(
    names: list[tuple[str, str | None]], config: dict[str, str]
) -> None:
    path = config_path(tuple(EntityName(*each) for each in names))
    assert decode_config(path, CLUSTER[path]) == config


# --- what Kafka reads ----------------------------------------------------------------------------
def _some(value: object) -> str:
    return "None" if value is None else f"Some({value})"


def _list(values: Any, between: str = ",") -> str:
    return between.join(str(each) for each in values)


def _map(values: dict[Any, Any]) -> str:
    return "Map(" + _list((f"{k} -> {v}" for k, v in values.items()), ", ") + ")"


def _show_broker(found: BrokerRegistration) -> str:
    endpoints = _list(
        f"EndPoint({'null' if e.host is None else e.host},{e.port},ListenerName({e.listener}),"
        f"{e.security_protocol})"
        for e in found.endpoints
    )
    features = _list(
        f"({name} -> SupportedVersionRange[min_version:{low}, max_version:{high}])"
        for name, (low, high) in found.features.items()
    )
    rack = "null" if found.rack is None else found.rack
    return f"7 : ({endpoints}) : {rack} : Features{{{features}}}"


def _show_topic(found: TopicAssignment) -> str:
    partitions = {
        f"t-{number}": f"ReplicaAssignment(replicas={_list(each.replicas)},"
        f" addingReplicas={_list(each.adding_replicas)},"
        f" removingReplicas={_list(each.removing_replicas)})"
        for number, each in found.partitions.items()
    }
    topic_id = None if found.topic_id is None else encode_uuid(found.topic_id)
    return f"TopicIdReplicaAssignment(t,{_some(topic_id)},{_map(partitions)})"


def _show_state(found: PartitionState) -> str:
    return (
        f"Some((Leader:{found.leader},ISR:{_list(found.isr)},LeaderRecoveryState:"
        f"{found.leader_recovery_state.name},LeaderEpoch:{found.leader_epoch},ZkVersion:0,"
        f"ControllerEpoch:{found.controller_epoch}))"
    )


def _show_controller(found: ControllerRegistration) -> str:
    epoch = found.kraft_controller_epoch
    return f"ZKControllerRegistration({found.broker_id},{_some(None if epoch == -1 else epoch)},0)"


def _show_features(found: FinalizedFeatures) -> str:
    return f"FeatureZNode(2,{'En' if found.enabled else 'Dis'}abled,{_map(found.levels)})"


def _show_block(found: ProducerIdBlock) -> str:
    size = found.last - found.first + 1
    first = f"firstProducerId={found.first}"
    return f"ProducerIdsBlock(assignedBrokerId={found.broker_id}, {first}, size={size})"


def _show_reassignment(found: dict[TopicPartition, tuple[int, ...]]) -> str:
    rows = {each: f"Buffer({_list(replicas, ', ')})" for each, replicas in found.items()}
    return f"Right({_map(rows)})"


KINDS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], str]]] = {
    "broker": (lambda data: decode_broker(7, data), _show_broker),
    "topic": (lambda data: decode_topic("t", data), _show_topic),
    "state": (lambda data: decode_partition_state(TopicPartition("t", 0), data), _show_state),
    "controller": (decode_controller, _show_controller),
    "controller_epoch": (decode_controller_epoch, str),
    "config": (
        lambda data: decode_config("/config/topics/t", data),
        lambda found: "{" + _list(f"{k}={v}" for k, v in found.items()) + "}",
    ),
    "reassign_partitions": (decode_reassignment, _show_reassignment),
    "preferred_replica_election": (
        decode_preferred_replica_election,
        lambda found: f"Set({_list(found, ', ')})",
    ),
    "log_dir_event": (lambda data: decode_log_dir_event("log_dir_event_1", data), _some),
    "feature": (decode_features, _show_features),
    "producer_id_block": (decode_producer_id_block, _show_block),
    "cluster_id": (decode_cluster_id, str),
    "offset": (lambda data: decode_offset("/consumers/g/offsets/t/0", data), _some),
}


def _shown(kind: str, text: str) -> str:
    decode, show = KINDS[kind]
    try:
        return show(decode(text.encode()))
    except ZnodeError:
        return "!"


def _of_kafka(kind: str, found: str) -> str:
    """Return the output of Kafka's classes, reduced to the facts that klog's values have, too."""
    if found.startswith(("!", "Left(")):
        return "!"
    if kind == "controller":
        return found.replace("Some(-1)", "None")
    return found.replace("FeatureZNode(1,", "FeatureZNode(2,")


STRICTER = [
    ("broker", '"SSL://h:99999"', "a port that is none"),
    ("broker", '"SSL://h:-1"', "a port that is none"),
    ("broker", '" SSL://h:1 "', "blanks around an endpoint"),
    ("broker", "trailing", "something behind the JSON"),
    ("topic", '"AAECAwQFBgcICQoLDA0ODw=="', "an id with the padding that Kafka never writes"),
    ("topic", "{}", "no partitions at all"),
    ("topic", '"-1"', "partition numbers that are none"),
    ("topic", '"00"', "partition numbers that are none"),
    ("topic", '"+1"', "partition numbers that are none"),
    ("topic", "[1,1]", "a replica twice on one broker"),
    ("topic", "[-5]", "a broker id that is none"),
    ("topic", "nonsense", "no JSON: Kafka takes it for a topic without partitions"),
    ("topic", "}} x", "something behind the JSON"),
    ("state", '"leader":-7', "a leader that is none"),
    ("state", "x", "no JSON: Kafka takes it for no state"),
    ("controller", "x", "no JSON: Kafka takes it for no controller"),
    ("controller_epoch", "+12", "a sign"),
    ("controller_epoch", "-12", "an epoch that is none"),
    ("config", "x", "no JSON: Kafka takes it for nothing set"),
    ("config", "[]", "another JSON: Kafka takes it for nothing set"),
    ("reassign_partitions", '"partition":0}]', "no replicas"),
    ("preferred_replica_election", "x", "no JSON: Kafka takes it for no partitions"),
    ("log_dir_event", "x", "no JSON: Kafka takes it for no event"),
    ("producer_id_block", '"999"}', "a block that ends before it begins"),
    ("cluster_id", "goes", "a blank in an id"),
    ("cluster_id", '"id":""', "no id"),
]
"""Znodes that Kafka reads and klog reports as bad: a kind, a part of the text, the reason."""
LAXER = [("reassign_partitions", "log_dirs", "a field that nobody knows")]


def _reason(reasons: list[tuple[str, str, str]], kind: str, text: str) -> str | None:
    found = [
        why
        for its, part, why in reasons
        if its == kind and (part == text if len(part) < 3 else part in text)
    ]
    return found[0] if found else None


@pytest.mark.parametrize(("kind", "text", "kafka"), READ)
def test_klog_reads_what_kafka_reads_and_refuses_what_kafka_refuses(
    kind: str, text: str, kafka: str
) -> None:
    ours, theirs = _shown(kind, text), _of_kafka(kind, kafka)
    if ours == "!" != theirs:
        assert _reason(STRICTER, kind, text), f"Kafka reads {theirs}"
    elif theirs == "!" != ours:
        assert _reason(LAXER, kind, text), f"klog reads {ours}"
    else:
        assert ours == theirs
