"""`klog consume`: prints a topic's records as they arrive."""

import io
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import click

from klog_broker.cli.common.client_options import HELP, ClientOptions, with_client_and_json_options
from klog_broker.cli.common.partitions import named_partitions
from klog_broker.cli.records.record_lines import separator_bytes
from klog_broker.cli.records.record_output import FIELDS, RecordFormat
from klog_broker.cli.records.record_reader import Columns, RecordReader
from klog_broker.cli.records.start_offsets import GroupPositions, StartPosition
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.continuous_reader import ContinuousReader, OutOfRange
from pyspark_klog.client.consumer.lost_offsets import is_passing_error
from pyspark_klog.client.consumer.offsets import EARLIEST
from pyspark_klog.client.errors import TimedOut
from pyspark_klog.client.settings.setting_rows import SETTINGS, Value
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition

_TURN_MS = 1_000
"""The longest wait for records, in milliseconds, before the command checks whether to commit or
stop."""
_SHORT_TURN_MS = 50
"""The longest wait for records, in milliseconds, when ``idle_ms`` have passed without records and
only a leader's outstanding response is awaited before the command stops."""
_COMMIT_EVERY_MS = 5_000
_TROUBLE_REPORT_INTERVAL_MS = 30_000

_HELP = """Print a topic's new records until Ctrl-C.

With --group it starts at the group's committed offsets, and commits the offsets after the printed
records; the group must have no members, since klog consume does not join it.

\b
  klog consume orders --from-beginning --timeout-ms 1000 --print key,value
  klog consume orders --from-beginning --json | klog produce orders-copy --json
"""


@click.command("consume", help=_HELP, context_settings=HELP)
@click.argument("topic", metavar="TOPIC")
@click.option("--from-beginning", is_flag=True, help="Start at the first record, not at the end.")
@click.option(
    "--offset",
    metavar="WHERE",
    help="Start at earliest, latest, an offset or a time (UTC): 2026-01-31T23:59:59.000.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Only this partition; repeatable.",
)
@click.option(
    "--group", "group_id", metavar="GROUP", help="Start at this group's offsets, and commit."
)
@click.option(
    "--max-messages", type=click.IntRange(min=1), metavar="N", help="Stop after this many records."
)
@click.option(
    "--timeout-ms",
    "idle_ms",
    type=click.IntRange(min=1),
    metavar="MS",
    help="Stop after this long without records.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(SETTINGS["isolation.level"].choices),
    help="Whether to print records of open and aborted transactions, too.",
)
@click.option(
    "--print",
    "fields",
    default="value",
    metavar="FIELD,...",
    help=f"Fields to print: {', '.join(FIELDS)}.  [default: value]",
)
@click.option(
    "--separator", default=r"\t", metavar="TEXT", help=r"Text between fields.  [default: \t]"
)
@click.option(
    "--null-value",
    default="null",
    metavar="TEXT",
    help="Text that null is printed as.  [default: null]",
)
@click.option(
    "--consumer-property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Kafka's consumer; repeatable.",
)
@with_client_and_json_options(
    "One JSON object per line, with all fields; non-UTF-8 bytes in base 64."
)
def command(
    asking: ClientOptions,
    topic: str,
    from_beginning: bool,
    offset: str | None,
    partitions: Sequence[int],
    group_id: str | None,
    max_messages: int | None,
    idle_ms: int | None,
    isolation_level: str | None,
    fields: str,
    separator: str,
    null_value: str,
    properties: Sequence[str],
) -> None:
    """Run `klog consume`; the help text is _HELP."""
    if offset is not None and from_beginning:
        raise click.UsageError("--offset and --from-beginning: expected one of them")
    if offset is not None and group_id is not None:
        raise click.UsageError("--offset and --group: expected one of them")
    start = StartPosition(timestamp_ms=EARLIEST) if from_beginning else StartPosition()
    start = start if offset is None else StartPosition.of_text(offset)
    form = RecordFormat(
        _fields(fields),
        asking.as_json,
        separator_bytes(separator),
        null_value.encode(),
        for_terminal=sys.stdout.isatty() and not asking.as_json,
    )
    own: dict[str, Value] = {}
    if isolation_level is not None:
        own["isolation.level"] = isolation_level
    with asking.with_properties(properties, own).client() as client:
        wanted = ",".join(map(str, partitions))
        named = named_partitions(client, [f"{topic}:{wanted}" if partitions else topic])
        group = None if group_id is None else GroupPositions(client, group_id)
        at = start.positions(client, named) if group is None else group.positions(named, start)
        printer = Printer(client, at, form, group, max_messages, idle_ms)
        if idle_ms is None:
            # The client must not log the failed requests that it repeats, because the printer
            # reports these failures itself.
            client.retries.mute()
        is_interrupted = False
        try:
            printer.run()
        except KeyboardInterrupt:
            is_interrupted = True
        except (BrokenPipeError, KlogError):
            # If this commit of offsets fails as well, report only the error that ended the reading.
            with suppress(KlogError):
                printer.commit()
            raise
        printer.commit()
    if is_interrupted or sys.stderr.isatty():
        records = "record" if printer.count == 1 else "records"
        click.echo(f"klog: {printer.count} {records}", err=True)


def _fields(text: str) -> tuple[str, ...]:
    fields = tuple(name.strip().replace("-", "_") for name in text.split(","))
    for name in fields:
        if name not in FIELDS:
            raise click.UsageError(f"--print {name!r}: expected some of {', '.join(FIELDS)}")
    return fields


class Printer:
    """Prints fetched records, and remembers the position of each partition.

    Without ``idle_ms`` the printer waits for new records, and for unavailable brokers, without end.
    With ``idle_ms`` it raises TimedOut when requests for a partition have failed for
    ``default.api.timeout.ms``.
    """

    def __init__(
        self,
        client: BlockingClient,
        positions: dict[TopicPartition, int],
        form: RecordFormat,
        group: GroupPositions | None,
        most_records: int | None,
        idle_ms: int | None,
    ) -> None:
        self.count = 0
        self._client = client
        self._form = form
        self._group = group
        self._most_records = most_records
        self._idle_ms = idle_ms
        self._trouble_reported_ms: int | None = None
        self._printed = dict(positions)
        """By partition: the offset at which printing goes on. The offset changes only after the
        records before it have been flushed to stdout."""
        self._reader = RecordReader(form.wanted, check_crcs=client.settings.flag("check.crcs"))
        self._follower = ContinuousReader(
            client,
            positions,
            trouble_timeout_ms=client.settings.number("default.api.timeout.ms"),
            on_out_of_range=_on_out_of_range,
            on_trouble=self._on_trouble,
        )
        self._out = _buffered_stdout()

    def run(self) -> None:
        """Print until as many records as the option --max-messages says are printed, or until all
        leaders have had no records for ``idle_ms``."""
        quiet_since_ms = self._client.now_ms()
        commit_at_ms = quiet_since_ms + _COMMIT_EVERY_MS
        while self._most_records is None or self.count < self._most_records:
            now_ms = self._client.now_ms()
            until_ms = now_ms + _TURN_MS
            if self._idle_ms is not None:
                idle_until_ms = max(quiet_since_ms + self._idle_ms, now_ms + _SHORT_TURN_MS)
                until_ms = min(until_ms, idle_until_ms)
            has_come = self._print_next(until_ms)
            now_ms = self._client.now_ms()
            if has_come:
                quiet_since_ms = now_ms
            elif self._is_over(quiet_since_ms, now_ms):
                return
            if now_ms >= commit_at_ms:
                self._commit_while_reading()
                commit_at_ms = self._client.now_ms() + _COMMIT_EVERY_MS

    def _is_over(self, quiet_since_ms: int, now_ms: int) -> bool:
        """Return whether to stop: ``idle_ms`` have passed since the last records, and since then
        each leader has answered without records."""
        if self._idle_ms is None or now_ms < quiet_since_ms + self._idle_ms:
            return False
        return self._follower.has_responses_from_all_since(quiet_since_ms)

    def _print_next(self, until_ms: int) -> bool:
        """Wait until ``until_ms`` for the next records, and print them. Return whether any batch
        came, even if it had only records that are not printed (control records and records of
        aborted transactions)."""
        reached: dict[TopicPartition, int] = {}
        for fetched in self._follower.poll(until_ms):
            for columns in self._reader.read(fetched):
                some = self._cut(columns)
                self._out.write(self._form.lines(some))
                self.count += len(some.offsets)
                reached[fetched.partition] = some.offsets[-1] + 1
                if self.count == self._most_records:
                    break
            else:
                reached[fetched.partition] = fetched.next_offset
                continue
            break
        self._out.flush()
        self._printed |= reached
        return bool(reached)

    def _cut(self, columns: Columns) -> Columns:
        if self._most_records is None or len(columns.offsets) <= self._most_records - self.count:
            return columns
        return columns.up_to(self._most_records - self.count)

    def commit(self) -> None:
        """Commit the position after the printed records for the group.

        A position is committed for partitions without printed records, too. Without a committed
        offset, the next run of the command would by default begin at the end of the partition, and
        would miss the records written between the two runs.
        """
        if self._group is not None:
            self._group.commit(self._printed)

    def _commit_while_reading(self) -> None:
        """Commit while reading. After an error that may pass (an unavailable coordinator, for
        example), report the error and continue, because a later commit replaces the failed one."""
        try:
            self.commit()
        except KlogError as error:
            if not (isinstance(error, TimedOut) or is_passing_error(error)):
                raise
            self._report_trouble(error)

    def _on_trouble(self, trouble: TimedOut) -> None:
        if self._idle_ms is not None:
            raise trouble
        self._report_trouble(trouble)

    def _report_trouble(self, trouble: KlogError) -> None:
        now_ms = self._client.now_ms()
        told_ms = self._trouble_reported_ms
        if told_ms is None or now_ms >= told_ms + _TROUBLE_REPORT_INTERVAL_MS:
            self._trouble_reported_ms = now_ms
            click.echo(f"klog: {trouble}; retrying", err=True)


def _buffered_stdout() -> BinaryIO:
    """Return stdout as a buffered stream. If Python runs unbuffered, a write to its raw stdout may
    write only a part of the bytes."""
    out: Any = sys.stdout.buffer
    return io.BufferedWriter(out) if isinstance(out, io.RawIOBase) else out


def _on_out_of_range(lost: OutOfRange) -> int:
    there = lost.earliest if lost.offset < lost.earliest else lost.latest
    click.echo(
        f"klog: offset {lost.offset} of {lost.partition} is out of range: the log has offsets "
        f"{lost.earliest} to {lost.latest} (end exclusive); continuing at {there}",
        err=True,
    )
    return there
