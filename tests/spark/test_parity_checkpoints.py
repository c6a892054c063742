"""A checkpoint that Spark's own connector left is gone on with, and klog's own is like it.

`tests/peers/test_parity_takeover.py` does the same with the peer itself, and back.
"""

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.support.parity.scenarios import Collected, Engine, Parity
from tests.support.spark.checkpoints import batches, offsets_of, write_peers_checkpoint

ROW = "source behaviour: a kafka query's checkpoint"


class OneFolder(Engine):
    """klog on a checkpoint of the peer's: the folder as it is."""

    def checkpoint(self, checkpoint: object) -> str:
        return str(checkpoint)


@pytest.fixture
def klog(parity: Parity) -> OneFolder:
    return OneFolder("klog", parity.topics)


def _numbers(collected: Collected) -> list[int]:
    return sorted(int(bytes(row.value)) for row in collected.rows())


def _topic(klog: Engine) -> str:
    topic = klog.topics.create(2)
    klog.topics.put_numbers(topic, range(10))
    klog.topics.put_numbers(topic, range(100, 110), 1)
    return topic


def _resume_query(klog: Engine, topic: str, folder: Path, **options: object) -> Collected:
    return klog.collected(klog.stream(subscribe=topic, **options), folder)


@pytest.mark.parity(ROW)
def test_a_query_goes_on_where_the_peer_stopped(klog: Engine, tmp_path: Path) -> None:
    topic = _topic(klog)
    ends = [{topic: {"0": 4, "1": 2}}, {topic: {"0": 8, "1": 6}}]
    write_peers_checkpoint(tmp_path, {topic: {"0": 0, "1": 0}}, ends, committed=2)
    assert _numbers(_resume_query(klog, topic, tmp_path)) == [8, 9, *range(106, 110)]
    assert batches(tmp_path) == ([0, 1, 2], [0, 1, 2])
    assert offsets_of(tmp_path, 2) == {topic: {"0": 10, "1": 10}}


@pytest.mark.parity(ROW)
def test_without_new_records_there_is_one_empty_batch_at_most(klog: Engine, tmp_path: Path) -> None:
    topic = _topic(klog)
    write_peers_checkpoint(tmp_path, {}, [{topic: {"0": 10, "1": 10}}], committed=1)
    for _ in range(2):
        assert _numbers(_resume_query(klog, topic, tmp_path)) == []
    assert batches(tmp_path) in (([0], [0]), ([0, 1], [0, 1]))


@pytest.mark.parity(ROW)
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_batch_that_the_peer_planned_is_run_as_planned(
    klog: Engine, tmp_path: Path, start: str
) -> None:
    topic = _topic(klog)
    ends = [{topic: {"0": 4, "1": 2}}, {topic: {"0": 7, "1": 3}}]
    write_peers_checkpoint(tmp_path, {topic: {"0": 0, "1": 0}}, ends, committed=1)
    found = _resume_query(klog, topic, tmp_path, startingOffsets=start)
    assert _numbers(found) == [*range(4, 10), *range(102, 110)]
    assert found.sizes() == [4, 10]  # the planned one, then the rest


@pytest.mark.parity(ROW)
def test_within_batch_0_the_start_is_in_the_peers_folder(klog: Engine, tmp_path: Path) -> None:
    topic = _topic(klog)
    initial = {topic: {"0": 3, "1": 1}}
    write_peers_checkpoint(tmp_path, initial, [{topic: {"0": 10, "1": 5}}], committed=0)
    found = _resume_query(klog, topic, tmp_path, startingOffsets=json.dumps(initial))
    assert _numbers(found) == [*range(3, 10), *range(101, 110)]


@pytest.mark.parity(ROW)
def test_partitions_that_came_while_it_was_stopped(klog: Engine, tmp_path: Path) -> None:
    topic = _topic(klog)
    write_peers_checkpoint(tmp_path, {}, [{topic: {"0": 10, "1": 10}}], committed=1)
    klog.topics.admin.create_partitions(topic, 3)
    klog.topics.put_numbers(topic, range(200, 203), 2)
    assert _numbers(_resume_query(klog, topic, tmp_path)) == [200, 201, 202]


@pytest.mark.parity(ROW)
def test_klogs_own_logs_are_the_peers_json(klog: Engine, tmp_path: Path) -> None:
    topic = _topic(klog)
    _resume_query(klog, topic, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    _resume_query(klog, topic, tmp_path)
    logged, committed = batches(tmp_path)
    assert logged == committed
    assert offsets_of(tmp_path, logged[-1]) == {topic: {"0": 10, "1": 10}}
    text = (tmp_path / "offsets" / "0").read_text(encoding="utf-8").splitlines()
    assert text[0] == "v1"
    assert len(text) == 3


@pytest.mark.parity("source behaviour: a checkpoint of an older klog")
def test_the_first_klogs_checkpoint_is_read(klog: Engine, tmp_path: Path) -> None:
    """Offsets as klog 0.1 wrote them: the peer's JSON, an empty start of batch 0 for `latest`."""
    topic = _topic(klog)
    ends = [{topic: {"0": 4, "1": 2}}, {topic: {"0": 8, "1": 6}}]
    write_peers_checkpoint(tmp_path, {}, ends, committed=1)
    (tmp_path / "sources" / "0" / "0").unlink()  # a Python source keeps nothing there
    for number, end in enumerate(ends):
        path = tmp_path / "offsets" / str(number)
        head, conf, _ = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join([head, conf, json.dumps(end)]), encoding="utf-8")
    found = _resume_query(klog, topic, tmp_path, startingOffsets="latest")
    assert _numbers(found) == [*range(4, 10), *range(102, 110)]


@pytest.mark.parity("source behaviour: a checkpoint of a newer format")
@pytest.mark.parametrize("end", ['{"format":2,"topics":{}}', '{"t":{"0":{"offset":1}}}', "[1]"])
def test_a_newer_klogs_checkpoint_is_refused(klog: Engine, tmp_path: Path, end: str) -> None:
    topic = _topic(klog)
    write_peers_checkpoint(tmp_path, {}, [{topic: {"0": 4, "1": 2}}], committed=1)
    path = tmp_path / "offsets" / "0"
    head, conf, _ = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([head, conf, end]), encoding="utf-8")
    with pytest.raises(PySparkException, match="cannot go on from this checkpoint"):
        _resume_query(klog, topic, tmp_path)
    assert batches(tmp_path) == ([0], [0])
