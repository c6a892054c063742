"""Wherever two logs part, a few questions find the place: all logs of up to five records."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

from klog_broker.log.answers import EpochEndOffset
from klog_broker.replication.truncation import cut_offset, tells_of_divergence
from tests.support.replication_model import ModelLog

Epochs = tuple[int, ...]
"""The epoch of each record: two records of an offset and an epoch are the same."""


def logs() -> Iterator[Epochs]:
    for length in range(6):
        yield from combinations_with_replacement(range(1, 5), length)


def common(one: Epochs, other: Epochs) -> int:
    """How many records both begin with."""
    equal = [a == b for a, b in zip(one, other, strict=False)]
    return equal.index(False) if False in equal else len(equal)


def can_be(one: Epochs, other: Epochs) -> bool:
    """An epoch has one leader: where both logs have records of it, these begin at one place, behind
    the log that its leader had when it was elected."""
    return all(
        one[: one.index(epoch)] == other[: other.index(epoch)] for epoch in set(one) & set(other)
    )


def model(epochs: Epochs, leads_in: int | None = None) -> ModelLog:
    log = ModelLog()
    for epoch in epochs:
        log.append_value(epoch, 0)
    if leads_in is not None:
        log.epochs.note(leads_in, log.log_end_offset)
    return log


def questions_until_they_match(leader: ModelLog, follower: ModelLog) -> int:
    for count in range(10):
        offset, last_epoch = follower.log_end_offset, follower.latest_epoch
        if last_epoch < 0:
            return count
        found: EpochEndOffset = leader.end_offset_for_epoch(last_epoch)
        if not tells_of_divergence(found, offset, last_epoch):
            return count
        own = follower.end_offset_for_epoch(found.leader_epoch)
        follower.truncate(cut_offset(found, own, offset))
        assert (follower.log_end_offset, follower.latest_epoch) != (offset, last_epoch)
    raise AssertionError("the logs never match")


def test_a_follower_keeps_exactly_what_its_leader_has_too() -> None:
    count = most = 0
    for leaders, followers in product(logs(), logs()):
        if can_be(leaders, followers):
            # A leader has begun its own epoch, newer than all that its follower has.
            follower = model(followers)
            asked = questions_until_they_match(model(leaders, leads_in=5), follower)
            assert follower.log_end_offset == common(leaders, followers), (leaders, followers)
            count, most = count + 1, max(most, asked)
    assert count > 3_000
    assert most >= 2
