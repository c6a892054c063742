"""Znodes hold for any value, and any bytes at all are either a value or refused by one error."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_klog.ids import TopicPartition
from pyspark_klog.znodes.brokers import (
    SECURITY_PROTOCOLS,
    BrokerRegistration,
    Endpoint,
    VersionRange,
)
from pyspark_klog.znodes.cluster import ControllerRegistration, ProducerIdBlock
from pyspark_klog.znodes.configs import (
    ENTITY_TYPES,
    EntityName,
    decode_entity_name,
    encode_entity_name,
    entity_path,
    parse_entity_path,
)
from pyspark_klog.znodes.consumers import ConsumerRegistration, offset_path
from pyspark_klog.znodes.data import MAX_EPOCH, MAX_ZNODE_BYTES, ZnodeError
from pyspark_klog.znodes.topics import (
    LeaderRecoveryState,
    PartitionAssignment,
    PartitionState,
    TopicAssignment,
)
from tests.support.znodes.cases import ONE_OF_EACH, codec

_INT32 = (1 << 31) - 1
_INT64 = (1 << 63) - 1
texts = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.integers(0, _INT32)
epochs = st.integers(0, MAX_EPOCH)
times = st.integers(-1, _INT64)
broker_ids = st.lists(numbers, unique=True, max_size=4).map(tuple)
names = st.from_regex("[a-zA-Z0-9._-]{1,20}", fullmatch=True)
partitions = st.builds(TopicPartition, names, numbers)
hosts = st.none() | st.from_regex("[a-z0-9._-]{1,10}|[0-9a-f]{1,4}::[0-9a-f]{0,4}", fullmatch=True)


@st.composite
def registrations(draw: st.DrawFn) -> BrokerRegistration:
    listeners = draw(st.lists(st.from_regex("[A-Z_]{1,8}", fullmatch=True), unique=True))
    ports, protocols = st.integers(0, 65535), st.sampled_from(SECURITY_PROTOCOLS)
    ranges = st.tuples(st.integers(0, 100), st.integers(100, 32767)).map(lambda v: VersionRange(*v))
    return BrokerRegistration(
        tuple(Endpoint(each, draw(hosts), draw(ports), draw(protocols)) for each in listeners),
        draw(times),
        draw(st.none() | texts),
        draw(st.integers(-1, 65535)),
        draw(st.dictionaries(texts, ranges, max_size=3)),
    )


entity_names = st.none() | texts.filter(bool)
entities = st.builds(EntityName, st.sampled_from(ENTITY_TYPES), entity_names).map(
    lambda each: (each,)
) | st.tuples(
    st.builds(EntityName, st.just("users"), entity_names),
    st.builds(EntityName, st.just("clients"), entity_names),
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "/brokers/ids/7": registrations(),
    "/brokers/topics/t": st.builds(
        TopicAssignment,
        st.none() | st.uuids(),
        st.dictionaries(
            numbers, st.builds(PartitionAssignment, broker_ids, broker_ids, broker_ids), max_size=8
        ),
    ),
    "/brokers/topics/t/partitions/0/state": st.builds(
        PartitionState,
        st.integers(-1, _INT32),
        epochs,
        broker_ids,
        epochs,
        st.sampled_from(LeaderRecoveryState),
    ),
    "/controller": st.builds(ControllerRegistration, numbers, times, st.integers(-1, _INT32)),
    "/controller_epoch": epochs,
    "/cluster/id": st.from_regex("[A-Za-z0-9_-]{22}", fullmatch=True),
    "/latest_producer_id_block": st.builds(
        lambda broker, first, size: ProducerIdBlock(broker, first, min(first + size, _INT64)),
        numbers,
        st.integers(0, _INT64),
        numbers,
    ),
    "/config/changes/config_change_0000000001": entities,
    "/config/topics/t": st.dictionaries(texts, texts, max_size=5),
    "/admin/reassign_partitions": st.dictionaries(partitions, broker_ids, max_size=5),
    "/admin/preferred_replica_election": st.lists(partitions, unique=True).map(tuple),
    "/isr_change_notification/isr_change_0000000001": st.lists(partitions, unique=True).map(tuple),
    "/log_dir_event_notification/log_dir_event_0000000001": numbers,
    "/consumers/g/ids/c": st.builds(
        ConsumerRegistration, st.dictionaries(texts, numbers, max_size=5), texts, times
    ),
    "/consumers/g/owners/t/0": texts.filter(bool),
    "/consumers/g/offsets/t/0": st.integers(-_INT64 - 1, _INT64),
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


def test_every_znode_that_klog_writes_has_values_here() -> None:
    assert VALUES.keys() == set(ONE_OF_EACH) - {"/feature"}


@pytest.mark.parametrize("path", VALUES)
def test_a_value_comes_back(path: str) -> None:
    both = codec(path)

    @settings(max_examples=50)
    @given(VALUES[path])
    def check(value: Any) -> None:
        data = both.encode(value)
        assert both.decode(data) == value
        if data.startswith(b"{") and "/owners/" not in path:
            assert data == data.strip() and json.loads(data)["version"]

    check()


@pytest.mark.parametrize("path", ONE_OF_EACH)
def test_damage_is_a_value_or_refused_by_the_znodes_path(path: str) -> None:
    both = codec(path)
    good = VALUES.get(path, st.just({"features": {"a": {"max_version_level": 1}}, "status": 1}))

    def encoded(value: Any) -> bytes:
        return json.dumps(value).encode() if path == "/feature" else both.encode(value)

    @settings(max_examples=50)
    @given(good.map(encoded), st.data())
    def check(data: bytes, draw: st.DataObject) -> None:
        for damaged in _damaged(data, draw):
            _decode(path, damaged)

    check()


def _damaged(data: bytes, draw: st.DataObject) -> list[bytes]:
    at = draw.draw(st.integers(0, len(data)))
    spliced = data[:at] + draw.draw(st.binary(max_size=4)) + data[at + draw.draw(numbers) % 4 :]
    found = [data[:at], spliced, draw.draw(st.binary(max_size=50))]
    value = _json_or_none(data)
    if isinstance(value, dict) and value:
        field = draw.draw(st.sampled_from(sorted(value)))
        without = {name: each for name, each in value.items() if name != field}
        other = value | {field: draw.draw(json_values)}
        found += [json.dumps(each).encode("utf-8", "replace") for each in (without, other)]
    return found


def _json_or_none(data: bytes) -> Any:
    """A value is a plain text at some paths, and a text may begin like an object."""
    try:
        return json.loads(data)
    except ValueError:
        return None


def _decode(path: str, data: bytes | None) -> object:
    try:
        return codec(path).decode(data)
    except ZnodeError as error:
        assert error.path == path and path in str(error)
        assert len(str(error)) < 1_000
        return None


HOSTILE = {
    "nothing": b"",
    "null": b"null",
    "not UTF-8": b'{"version":1,"a":"\xff"}',
    "half a character": b'{"version":1,"config":{"a":"\\ud800"}}',
    "deep arrays": b"[" * MAX_ZNODE_BYTES,
    "deep objects": b'{"a":' * (MAX_ZNODE_BYTES // 5),
    "a long number": b'{"version":' + b"9" * 1_000_000 + b"}",
    "no number": b'{"version":NaN}',
    "an endless number": b'{"version":1e999}',
    "a truth": b'{"version":true}',
    "a long text": b'{"version":"' + b"x" * 1_000_000 + b'"}',
    "a long name": b'{"version":1,"partitions":{"' + b"1" * 1_000_000 + b'":[1]}}',
    "many objects": b'{"version":1,"partitions":[' + b"{}," * 300_000 + b"{}]}",
    "more than ZooKeeper takes": b'{"version":1,"a":"' + b"x" * MAX_ZNODE_BYTES + b'"}',
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bytes_are_refused_by_every_znode(what: str) -> None:
    taken = {path for path in ONE_OF_EACH if _decode(path, HOSTILE[what])}
    # An owner's name is any text that is not long.
    assert taken <= {"/consumers/g/owners/t/0"}


@pytest.mark.parametrize("what", ["many objects", "deep arrays", "a long text", "a long name"])
def test_hostile_bytes_take_bounded_memory(what: str) -> None:
    tracemalloc.start()
    try:
        _decode("/admin/reassign_partitions", HOSTILE[what])
        _decode("/brokers/topics/t", HOSTILE[what])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 32 * MAX_ZNODE_BYTES


@given(texts)
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    assert "/" not in encode_entity_name(name) and encode_entity_name(name).isascii()
    assert decode_entity_name(encode_entity_name(name)) == name


@given(entities)
def test_an_entity_is_found_by_its_path(names: Any) -> None:
    assert parse_entity_path("/config/changes/x", entity_path(names)) == names


@given(st.text(max_size=50))
def test_any_text_is_an_entity_or_refused(text: str) -> None:
    try:
        names = parse_entity_path("/config/changes/x", text)
    except ZnodeError:
        return
    assert len(names) in (1, 2)


@given(st.text(max_size=20))
def test_a_groups_position_never_leaves_the_group(group: str) -> None:
    try:
        path = offset_path(group, TopicPartition("t", 0))
    except ZnodeError:
        return
    assert path.split("/")[1:] == ["consumers", group, "offsets", "t", "0"]
    assert group not in ("", ".", "..")
