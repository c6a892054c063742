"""Errors for bad znodes, and the znodes' paths."""

import pytest

from pyspark_klog.ids import TopicPartition
from pyspark_klog.znodes.brokers import decode_broker
from pyspark_klog.znodes.cluster import decode_cluster_id, decode_controller_epoch, decode_features
from pyspark_klog.znodes.configs import (
    EntityName,
    config_path,
    decode_config,
    decode_config_change,
    entity,
    entity_path,
)
from pyspark_klog.znodes.consumers import (
    ConsumerRegistration,
    consumer_id_path,
    decode_consumer,
    encode_consumer,
    offset_path,
    owner_path,
)
from pyspark_klog.znodes.data import ZnodeError
from pyspark_klog.znodes.paths import partition_state_path, registered_id, sequence_number
from pyspark_klog.znodes.topics import decode_partition_state, decode_topic

ORDERS_3 = TopicPartition("orders", 3)


@pytest.mark.parametrize(
    ("data", "expected", "found"),
    [
        (None, "a JSON object in UTF-8", "no data"),
        (b"\xff{}", "a JSON object in UTF-8", r"b'\xff{}'"),
        (b"{", "a JSON object in UTF-8", "b'{'"),
        (b"[1]", "a JSON object in UTF-8", "[1]"),
        (b'{"other":NaN}', "a JSON object in UTF-8", "b'{"),
        (b"{}", "'leader' to be a number of 32 bits, at least -1", "no such field"),
        (b'{"leader":"1"}', "'leader' to be a number of 32 bits, at least -1", "'1'"),
        (b'{"leader":1.0}', "'leader' to be a number of 32 bits, at least -1", "1.0"),
        (b'{"leader":true}', "'leader' to be a number of 32 bits, at least -1", "True"),
        (b'{"leader":2147483648}', "'leader' to be a number of 32 bits", "2147483648"),
        (b'{"leader":1,"leader_epoch":0,"isr":[1,1]}', "'isr' to be an array of broker ids", "[1,"),
        (b'{"leader_recovery_state":2}', "'leader_recovery_state' to be 0 (recovered) or 1", "2"),
        (b'{"leader":"' + b"9" * 500 + b'"}', "'leader' to be a number", "'9999"),
        (b" " * (1 << 21), "of at most 1048576 bytes", "2097152 bytes"),
    ],
)
def test_an_error_says_where_what_was_found_and_what_was_expected(
    data: bytes | None, expected: str, found: str
) -> None:
    with pytest.raises(ZnodeError) as error:
        decode_partition_state(ORDERS_3, data)
    path = "/brokers/topics/orders/partitions/3/state"
    assert error.value.path == path == partition_state_path(ORDERS_3)
    text = str(error.value)
    assert text.startswith(f"the znode {path} cannot be used: expected ")
    assert expected in text and f", found {found}" in text and len(text) < 400


def test_an_error_names_the_field_within_a_field() -> None:
    with pytest.raises(ZnodeError, match=r"/brokers/topics/t .* 'partitions\.4' .* found \['x'\]"):
        decode_topic("t", b'{"partitions":{"4":["x"]}}')
    with pytest.raises(ZnodeError, match=r"/brokers/ids/7 .* 'features\.a\.max_version' "):
        decode_broker(7, b'{"version":1,"host":"h","port":1,"jmx_port":1,"features":{"a":'
                         b'{"min_version":3,"max_version":2}}}')  # fmt: skip


def test_versions_are_looked_at_where_kafka_does() -> None:
    with pytest.raises(ZnodeError, match=r"/feature .* 'version' to be 1 to 2, found 3"):
        decode_features(b'{"version":3,"status":1,"features":{}}')
    with pytest.raises(ZnodeError, match=r"config_change_1 .* 'version' to be 1 to 2, found 3"):
        decode_config_change("config_change_1", b'{"version":3,"entity_path":"topics/t"}')
    with pytest.raises(
        ZnodeError, match="'version' to be a number of 32 bits, at least 1, found 0"
    ):
        decode_broker(7, b'{"version":0}')
    with pytest.raises(ZnodeError, match=r"/cluster/id .* 'id' to be a string, found 5"):
        decode_cluster_id(b'{"version":"7","id":5}')
    with pytest.raises(ZnodeError, match=r"/controller_epoch .* found 'x'"):
        decode_controller_epoch(b"x")


def test_changes_of_settings_are_read_in_both_versions() -> None:
    old = b'{"version":1,"entity_type":"topics","entity_name":"orders"}'
    assert decode_config_change("c", old) == entity("topics", "orders")
    with pytest.raises(ZnodeError, match="'entity_type' to be topics or clients, found 'users'"):
        decode_config_change("c", old.replace(b"topics", b"users"))
    for text in (
        "",
        "topics",
        "topics/",
        "topics/a/b",
        "users/a/ips/b",
        "clients/a/users/b",
        "x/y",
    ):
        with pytest.raises(ZnodeError, match="expected the path of an entity"):
            decode_config_change("c", b'{"version":2,"entity_path":"%b"}' % text.encode())


def test_entities_have_kafkas_paths() -> None:
    assert config_path(entity("topics", "orders")) == "/config/topics/orders"
    assert config_path(entity("brokers", None)) == "/config/brokers/<default>"
    both = (EntityName("users", "<default>"), EntityName("clients", None))
    assert entity_path(both) == "users/%3Cdefault%3E/clients/<default>"


def test_nothing_is_set_where_there_is_no_data() -> None:
    assert decode_config("/config/users/u", None) == {}
    assert decode_config("/config/users/u", b"") == {}


def test_the_first_consumers_znodes_are_as_they_wrote_them() -> None:
    # Kafka 0.8 to 1.1 (ZookeeperConsumerConnector) has the rules: 3.9.1 has none for these two.
    registration = ConsumerRegistration({"orders": 2}, "static", 1700000000123)
    data = (
        b'{"version":1,"subscription":{"orders":2},"pattern":"static","timestamp":"1700000000123"}'
    )
    path = consumer_id_path("g", "g_host-1700000000123-abcdef")
    assert path == "/consumers/g/ids/g_host-1700000000123-abcdef"
    assert encode_consumer(registration) == data
    assert decode_consumer(path, data) == registration
    assert owner_path("g", ORDERS_3) == "/consumers/g/owners/orders/3"
    assert offset_path("g", ORDERS_3) == "/consumers/g/offsets/orders/3"


@pytest.mark.parametrize(
    "group", ["", ".", "..", "a/b", "../../brokers", "a\0", "a\x85", "\U0001f600"]
)
def test_a_group_that_cannot_be_a_name_in_a_path_is_refused(group: str) -> None:
    with pytest.raises(ZnodeError, match="a name that ZooKeeper takes in a path"):
        offset_path(group, ORDERS_3)


def test_registrations_are_named_by_the_brokers_ids() -> None:
    assert [registered_id(name) for name in ("0", "7", "2147483647")] == [0, 7, 2147483647]
    for name in ("", "x", "07", "-1", "\u0663", "2147483648", "9" * 5_000):
        assert registered_id(name) is None


def test_sequential_znodes_have_numbers() -> None:
    assert sequence_number("config_change_0000000012", "config_change_") == 12
    assert sequence_number("config_change_-2147483648", "config_change_") == -2147483648
    for name in ("config_change_", "other_0000000012", "config_change_x", "0000000012", "²"):
        assert sequence_number(name, "config_change_") is None
