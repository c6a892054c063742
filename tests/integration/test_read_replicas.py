"""A batch with `kafka.client.rack` on two nodes: from the option to the requests on the wire."""

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.source.reader import BatchReader
from tests.support.client.rack_nodes import FOLLOWER, LEADER, RackNodes, rack_nodes

pytestmark = pytest.mark.parity("beyond: 10 rack awareness")


def _values(nodes: RackNodes, **options: str) -> list[int]:
    given = {"kafka.bootstrap.servers": nodes.bootstrap_servers, "subscribe": "t", **options}
    reader = BatchReader(read_options(given).for_batch())
    return [
        int(value)
        for part in reader.partitions()
        for batch in reader.read(part)
        for value in batch["value"].to_pylist()
    ]


def test_the_replica_of_the_readers_rack_is_read() -> None:
    with rack_nodes(50) as nodes:
        found = _values(nodes, **{"kafka.client.rack": "near-the-follower"})
        assert found == list(range(50))
        assert set(nodes.served) == {FOLLOWER}
        assert nodes.racks == ["near-the-follower"]


@pytest.mark.parametrize("rack", [None, "near-the-leader"])
def test_the_leader_is_read_otherwise(rack: str | None) -> None:
    options = {} if rack is None else {"kafka.client.rack": rack}
    with rack_nodes(50) as nodes:
        assert _values(nodes, **options) == list(range(50))
        assert set(nodes.served) == {LEADER}
        assert set(nodes.racks) == {rack or ""}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_replica_that_fails_is_left_for_the_leader(code: ErrorCode) -> None:
    with rack_nodes(50) as nodes:
        nodes.trouble = lambda offset: ErrorCode.NONE if offset < 20 else code
        found = _values(nodes, **{"kafka.client.rack": "near-the-follower"})
        assert found == list(range(50))
        assert nodes.served == sorted(nodes.served, reverse=True)
        assert set(nodes.served) == {FOLLOWER, LEADER}
