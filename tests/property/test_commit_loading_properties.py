"""A log of committed offsets, whatever it holds, gives the same state, warnings and errors whether
it is loaded in runs or record by record."""

from hypothesis import given, settings

from klog_broker.coordinator.shard import ShardStatus
from tests.support.coordinator.offsets_loading import BY_RECORD, IN_RUNS, found_in, loaded, logged
from tests.support.coordinator.offsets_logs import LogOfBatches, logs


@given(log=logs())
@settings(max_examples=100, deadline=None)
def test_runs_leave_what_records_leave(log: LogOfBatches) -> None:
    with logged() as said_of_records:
        by_record = loaded(log, BY_RECORD)
    with logged() as said_of_runs:
        in_runs = loaded(log, IN_RUNS)
    assert said_of_runs == said_of_records
    assert in_runs.status is by_record.status
    if by_record.status is ShardStatus.SERVING:
        assert found_in(in_runs) == found_in(by_record)
