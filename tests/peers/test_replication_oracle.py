"""Leader epochs and truncation points of followers, compared with Kafka's own classes."""

from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path

import pytest

from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.log.segment.leader_epochs import LeaderEpochs
from klog_broker.replication.follower_state import FetchedPart, FollowerState, StartOver, Truncate
from klog_broker.replication.truncation import is_diverging_epoch, truncation_offset
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import LeaderEpoch, Offset
from tests.support.peers import OLDEST_KAFKA
from tests.support.protocol.kafka_definitions import run_java
from tests.support.replication.log_model import ModelLog
from tests.support.runtime.memory_files import MemoryFiles

pytestmark = pytest.mark.peers

Starts = tuple[tuple[int, int], ...]
"""Epochs with their start offsets."""
EPOCHS = (0, 2, 3, 5)
END = 4


def kept(starts: Starts) -> LeaderEpochs:
    epochs = LeaderEpochs(MemoryFiles(), Path("/log"))
    for epoch, start in starts:
        epochs.add_epoch(epoch, start)
    return epochs


def histories() -> Iterator[Starts]:
    """All ways in which up to three epochs can begin in a log that ends at END."""
    for count in range(4):
        for epochs in combinations(EPOCHS, count):
            for starts in combinations(range(END + 1), count):
                yield tuple(zip(epochs, starts, strict=True))


def shown(starts: Sequence[Sequence[int]]) -> str:
    return ",".join(f"{epoch}:{start}" for epoch, start in starts) or "-"


def kafka_answers(questions: Sequence[str]) -> list[str]:
    return run_java(OLDEST_KAFKA, "FollowerAnswers.java", "\n".join(questions))


def check(questions: Sequence[str], ours: Sequence[str]) -> None:
    wrong = [
        row
        for row in zip(questions, kafka_answers(questions), ours, strict=True)
        if row[1].strip() != row[2]
    ]
    assert not wrong, (len(wrong), wrong[:5])


def test_a_leader_says_of_every_epoch_where_it_ended_as_kafkas_does() -> None:
    questions, ours = [], []
    for starts, asked in product(histories(), range(-1, 7)):
        questions.append(f"end {shown(starts)} {END} {asked}")
        epoch, offset = kept(starts).end_offset_for(asked, END)
        ours.append(f"{epoch} {offset}")
    check(questions, ours)
    assert len(questions) > 900


def test_a_batch_of_any_epoch_is_noted_as_kafkas_log_notes_it() -> None:
    """A batch may also contradict the noted epochs, whose records are gone then."""
    questions, ours = [], []
    for starts, epoch, offset in product(histories(), range(7), range(END + 1)):
        questions.append(f"note {shown(starts)} {epoch}:{offset}")
        epochs = kept(starts)
        epochs.add_epoch(epoch, offset)
        ours.append(shown(epochs.entries))
    check(questions, ours)


def test_a_log_that_is_shortened_keeps_the_epochs_that_kafkas_keeps() -> None:
    questions, ours = [], []
    for starts in histories():
        for start, end in combinations_with_replacement(range(END + 1), 2):
            questions.append(f"keep {shown(starts)} {start} {end}")
            epochs = kept(starts)
            epochs.truncate_from_start(start)
            epochs.truncate_from_end(end)
            ours.append(shown(epochs.entries))
    check(questions, ours)


def test_a_diverged_log_is_cut_where_kafkas_follower_cuts_it() -> None:
    """All divergences that a leader can report, to followers of all histories."""
    questions, ours = [], []
    for starts in histories():
        epochs = kept(starts)
        for end in range(max((start for _, start in starts), default=0), END + 1):
            for leaders in product(range(epochs.latest + 1), range(END + 2)):
                told = EpochEndOffset(LeaderEpoch(leaders[0]), Offset(leaders[1]))
                if not is_diverging_epoch(told, end, epochs.latest):
                    continue
                own = EpochEndOffset(*epochs.end_offset_for(told.leader_epoch, end))
                questions.append(f"cut {shown(starts)} {end} {leaders[0]} {leaders[1]}")
                ours.append(str(truncation_offset(told, own, end)))
    check(questions, ours)
    assert len(questions) > 2_000


def test_out_of_range_ends_as_for_kafkas_follower() -> None:
    questions, ours = [], []
    for start, end in combinations_with_replacement(range(END + 1), 2):
        for leaders in combinations_with_replacement(range(END + 2), 2):
            log = ModelLog(start)
            for offset in range(start, end):
                log.append_value(0, str(offset))
            follower = FollowerState(log, LeaderEpoch(0), backoff_ms=1)
            position = follower.position(0, flushes_first=False)
            assert position is not None
            out = FetchedPart(ErrorCode.OFFSET_OUT_OF_RANGE, memoryview(b""), -1, -1)
            follower.handle_response(position, out, 0)
            step = follower.handle_ends(0, *leaders, 0)
            questions.append(f"range {start} {end} {leaders[0]} {leaders[1]}")
            if step is None:
                ours.append(f"from {end}")
            else:
                # If the leader's log starts later, Kafka's follower lets its log start again.
                assert isinstance(step, Truncate | StartOver)
                is_anew = leaders[0] > end
                assert isinstance(step, StartOver) == (is_anew or step.offset < start)
                ours.append(f"{'anew' if is_anew else 'cut'} {step.offset} from {step.offset}")
    check(questions, ours)
