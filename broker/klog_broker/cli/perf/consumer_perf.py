"""Measures reading for `klog perf consume`."""

from klog_broker.cli.common.damaged_records import damage_named
from klog_broker.cli.common.partitions import named_partitions
from klog_broker.cli.common.progress import Advance
from klog_broker.cli.perf.figures import Flow
from klog_broker.cli.perf.producer_perf import PRINT_EVERY_S, PrintFigures
from pyspark_klog.client.clock import monotonic_s
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.continuous_reader import ContinuousReader, Fetched, OutOfRange
from pyspark_klog.client.consumer.offsets import EARLIEST, list_offsets
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.record_sets import entries


def measure_reading(
    client: BlockingClient,
    topic: str,
    most_records: int,
    idle_ms: int,
    advance: Advance,
    say: PrintFigures,
) -> dict[str, float]:
    """Read a topic from its beginning until ``most_records`` records or more have come, no record
    has come for ``idle_ms``, or Ctrl-C is pressed. Return the totals and rates (`Flow.figures`)."""
    partitions = named_partitions(client, [topic])
    positions = list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    check_crcs = client.settings.flag("check.crcs")
    start_s = monotonic_s()
    last_s = start_s
    total, of_while = Flow(start_s), Flow(start_s)
    follower = ContinuousReader(
        client,
        {partition: at.offset for partition, at in positions.items()},
        trouble_timeout_ms=client.settings.number("default.api.timeout.ms"),
        on_out_of_range=_at_the_beginning,
    )
    try:
        while total.records < most_records:
            found = follower.poll(client.now_ms() + idle_ms)
            if not found:
                break
            for fetched in found:
                records = count_records(fetched, check_crcs=check_crcs)
                total.add(records, len(fetched.data))
                of_while.add(records, len(fetched.data))
                advance(records)
            last_s = monotonic_s()
            if last_s - of_while.start_s >= PRINT_EVERY_S:
                say(of_while.figures(last_s))
                of_while = Flow(last_s)
    except KeyboardInterrupt:
        pass
    return total.figures(last_s)


def count_records(fetched: Fetched, *, check_crcs: bool) -> int:
    """Count the records of whole batches, without control records, but with records of aborted
    transactions."""
    count = 0
    with damage_named(fetched):
        for entry in entries(fetched.data, allow_partial=True):
            if check_crcs:
                entry.check_crc()
            if isinstance(entry, BatchView):
                count += 0 if entry.is_control else entry.record_count
            else:
                count += sum(1 for _ in entry.records())
    return count


def _at_the_beginning(lost: OutOfRange) -> int:
    """Return the log start offset: reading continues there after an offset that the log does not
    have, normally because retention has deleted records before they were read."""
    return lost.earliest
