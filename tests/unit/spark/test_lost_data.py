"""Each cause of lost data has its own message; failOnDataLoss=false is proposed last, if at all."""

from typing import cast

import pytest

from pyspark_klog.client.consumer import lost_offsets
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.spark.planning.group_start import start_of
from pyspark_klog.spark.planning.losses import (
    GivenOffsets,
    Loss,
    group_out_of_range,
    loss_in_task,
)
from pyspark_klog.spark.planning.ranges import plan

_P = TopicPartition("t", 0)
_SKIP = "set option failOnDataLoss=false"
_EARLIEST_TO_LATEST = GivenOffsets({}, {})


def _deleted_records() -> OffsetsLost:
    return lost_offsets.out_of_range(_P, 2, 7, (5, 8))


def _beyond_end() -> OffsetsLost:
    return lost_offsets.out_of_range(_P, 9, 12, (0, 8))


def _recreated() -> OffsetsLost:
    return lost_offsets.topic_recreated(_P, 2, 7, UUID(int=1), UUID(int=2))


@pytest.mark.parametrize(
    ("lost", "given", "cause", "advice"),
    [
        (
            _deleted_records(),
            None,
            "retention or DeleteRecords deleted the records before offset 5",
            "let the topic keep records for longer (retention.ms, retention.bytes), or run the "
            f"query more often; {_SKIP} to read on from offset 5",
        ),
        (
            _deleted_records(),
            _EARLIEST_TO_LATEST,
            "retention or DeleteRecords deleted the records before offset 5",
            f"begin at an offset that exists, or at earliest; {_SKIP} to read on from offset 5",
        ),
        (
            _beyond_end(),
            GivenOffsets({_P: 9}, {}),
            "startingOffsets is beyond the end",
            "begin at offset 8 or before, and check the topic and kafka.bootstrap.servers",
        ),
        (
            _beyond_end(),
            GivenOffsets({_P: 3}, {_P: 12}),
            "endingOffsets is beyond the end",
            "end at offset 8 or before, or read again when the records are written; "
            f"{_SKIP} to read up to offset 8",
        ),
        (
            _beyond_end(),
            _EARLIEST_TO_LATEST,
            "replicas lost their last records since the query was planned",
            f"run the query again; {_SKIP} to read up to offset 8",
        ),
        (
            lost_offsets.partition_deleted(_P, 2, 7),
            None,
            "it, or its topic, does not exist any more",
            "check the topic, and start the query again, which then names the cause; to read on "
            f"without these offsets, {_SKIP}",
        ),
        (_recreated(), _EARLIEST_TO_LATEST, "was deleted and made again", "run the query again"),
        (
            _recreated(),
            None,
            "was deleted and made again",
            "give a stream a new checkpointLocation, or move its offsets with python -m "
            "pyspark_klog checkpoint move: at the old ones it would go on in the midst of the new "
            "topic",
        ),
    ],
)
def test_a_task_names_the_cause(
    lost: OffsetsLost, given: GivenOffsets | None, cause: str, advice: str
) -> None:
    loss = loss_in_task(lost, given)
    assert loss.text.startswith(str(lost)) and cause in loss.text
    assert loss.advice == advice


def test_a_stream_that_finds_an_early_end_is_sent_to_the_topic_first() -> None:
    planned = plan({_P: 9}, {_P: 8}, {}).lost
    assert planned == [loss_in_task(_beyond_end(), None)]
    [loss] = planned
    assert "its topic was deleted and created again, its replicas lost records, or" in loss.text
    assert loss.advice.startswith("after a change of topic or cluster give a stream a new check")
    assert loss.advice.endswith(f"(unclean leader election), {_SKIP} to read on at offset 8")


@pytest.mark.parametrize(
    ("offset", "cause"),
    [
        (3, "retention or DeleteRecords deleted the records between"),
        (13, "the topic was created again, or its last records were lost"),
    ],
)
def test_a_groups_offset_that_does_not_exist_names_the_cause(offset: int, cause: str) -> None:
    lost = start_of({_P: offset}, {_P: 5}, {_P: 12}).lost
    assert lost == [f"t-0 at {offset}, but the partition has offsets 5 to 12: {cause}"]
    assert str(group_out_of_range("g", lost)) == (
        f"group g is out of range: {lost[0]}; set the group's offsets (klog groups reset-offsets), "
        f"or {_SKIP} to begin these partitions at their first offset"
    )


def test_an_advice_is_behind_the_text() -> None:
    assert str(cast(object, Loss("a is lost", "do b"))) == "a is lost; do b"
