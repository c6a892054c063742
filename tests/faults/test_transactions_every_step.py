"""A broker is lost at each disk step of its transactions: they end once, as was decided."""

from functools import cache

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.control import ControlType, control_type_of
from tests.support.cluster.broker import MemoryBroker
from tests.support.coordinator.transaction_client import (
    OTHER,
    PLAIN,
    MemoryClient,
    broker_with_coordinators,
)
from tests.support.runtime.crash_points import crash_points
from tests.support.runtime.memory_files import MemoryFiles

NONE = ErrorCode.NONE
OFFSETS = TopicPartition("__consumer_offsets", 0)
COMMITS = (True, False, True)


@cache
def _prepared() -> MemoryFiles:
    broker = broker_with_coordinators()
    assert MemoryClient(broker).init() == 0
    broker.close()
    return broker.files


def run_transactions(client: MemoryClient, told: list[bool]) -> None:
    """Run three transactions with records in two partitions and an offset.

    ``told`` gets the outcome of each transaction whose EndTxn got a response.
    """
    assert client.init() == 0
    for number, commit in enumerate(COMMITS):
        for each in (PLAIN, OTHER):
            if not client.raises:
                assert client.add(each) == [0]
            assert client.produce(each, b"%d" % number) is NONE
        if not client.raises:
            assert client.add_offsets() == 0
        assert client.commit_offsets(number + 1) == [0]
        assert client.end_transaction(commit=commit) == 0
        told.append(commit)


def ends(broker: MemoryBroker, partition: TopicPartition) -> list[tuple[int, bool]]:
    """The record count and outcome (whether committed) of each transaction in the partition."""
    log = broker.log(*partition)
    region = log.read(0, 1 << 20, end_offset=log.log_end_offset).region
    found: list[tuple[int, bool]] = []
    count = 0
    for batch in split_batches(region.file.pread(region.size, region.position) if region else b""):
        if batch.is_control:
            kind = control_type_of(next(iter(batch.records())).key)
            if count:
                found.append((count, kind is ControlType.COMMIT))
            count = 0
        elif batch.is_transactional:
            count += batch.record_count
    assert count == 0, "a transaction is open"
    return found


def check(files: MemoryFiles, told: list[bool]) -> None:
    broker = MemoryBroker(files, with_kernel=False)
    client = MemoryClient(broker)
    for _ in range(20):
        broker.pass_time(200)
    # A new process takes over the id: undecided transactions are aborted.
    assert client.init() == 0
    outcomes = {each: ends(broker, each) for each in (PLAIN, OTHER, OFFSETS)}
    for found in outcomes.values():
        assert all(count == 1 for count, _ in found)
        commits = [commit for _, commit in found]
        assert commits[: len(told)] == told
        # At most one more transaction was begun; it ended as requested, or was aborted.
        assert commits[len(told) :] in ([], [False], [*COMMITS[len(told) : len(told) + 1]])
    # All partitions of that transaction have the same outcome.
    last = {found[len(told)] for found in outcomes.values() if len(found) > len(told)}
    assert len(last) <= 1
    committed = [n + 1 for n, (_, commit) in enumerate(outcomes[OFFSETS]) if commit]
    assert client.committed(stable=True) == (committed[-1] if committed else -1)
    for each in (PLAIN, OTHER):
        assert client.stable_offset(each) == broker.log(*each).log_end_offset
    again = MemoryClient(broker, "another")
    assert again.init() == 0
    assert again.verify(PLAIN) is NONE
    again.write(PLAIN)
    assert again.end_transaction() == 0
    broker.close()


@pytest.mark.parametrize("raises", [True, False], ids=["version-2", "version-0"])
def test_lost_at_every_step_transactions_end_once_and_as_decided(raises: bool) -> None:
    broker = MemoryBroker(_prepared().killed(), with_kernel=False)
    client = MemoryClient(broker, raises=raises)
    told: list[bool] = []
    points = crash_points(broker.files, lambda: run_transactions(client, told), lambda: tuple(told))
    assert len(points) > 25
    disks: set[object] = set()
    for step, files, promised in points:
        key = (files.content(), promised)
        if key in disks:
            continue  # the step before was a sync, which the next process does not see
        disks.add(key)
        try:
            check(files, list(promised))
        except BaseException as error:
            error.add_note(f"step {step}")
            raise
