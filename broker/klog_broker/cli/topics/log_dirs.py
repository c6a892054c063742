"""`klog log-dirs`: shows the size of topics on brokers' disks, on any broker with Kafka's
protocol."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    with_client_options,
)
from klog_broker.cli.common.failures import Failures
from klog_broker.cli.common.tables import Row, print_table
from pyspark_klog.client.admin.log_dirs import LogDir, describe_log_dirs
from pyspark_klog.errors import BrokerError, ErrorCode

_HELP = """Show how large replicas are in the data directories of brokers.

The lag of a replica is the number of offsets that it is behind the high watermark. A replica that
is being moved to the directory (`moving`) is compared with the present replica instead.
"""


@click.command("log-dirs", help=_HELP, context_settings=HELP)
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="ID",
    help="Only this broker; repeatable.",
)
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; repeatable."
)
@click.option(
    "--by-topic", is_flag=True, help="Show one line per topic and directory, not per partition."
)
@with_client_options
def command(
    asking: ClientOptions, brokers: Sequence[int], topics: Sequence[str], by_topic: bool
) -> None:
    """Run `klog log-dirs`; the help text is _HELP."""
    found: list[LogDir] = []
    failures = Failures()
    with asking.client() as client:
        for broker_id in sorted({*brokers} or client.refresh([]).brokers):
            with failures.collect():
                found += describe_log_dirs(client, broker_id)
    if asking.as_json:
        print_json([_details(each, topics) for each in found])
    elif found or not failures:
        _print_tables(found, topics, by_topic)
    failures.add(offline_errors(found))
    failures.raise_collected()


def offline_errors(found: Iterable[LogDir]) -> Iterator[BrokerError]:
    """Return the error of each directory that has one: an offline directory."""
    for each in found:
        if each.error is not ErrorCode.NONE:
            yield BrokerError(each.error, f"{each.path} of broker {each.broker_id}")


def _print_tables(found: Sequence[LogDir], topics: Collection[str], by_topic: bool) -> None:
    rows = [row for each in found for row in _rows(each, topics)]
    if by_topic:
        print_table(("broker", "directory", "topic", "partitions", "bytes"), _summed(rows))
    else:
        names = ("broker", "directory", "topic", "partition", "bytes", "lag", "state")
        print_table(names, rows)
    click.echo()
    print_totals(found, topics)


def print_totals(found: Iterable[LogDir], topics: Collection[str] = ()) -> None:
    """Print a line per directory: the number of replicas and their bytes (of these topics, or of
    all), and the bytes of the disk."""
    names = ("broker", "directory", "replicas", "bytes", "disk bytes", "free bytes", "state")
    print_table(names, [_total(each, topics) for each in found])


def _rows(found: LogDir, topics: Collection[str]) -> list[Row]:
    return [
        (
            *(found.broker_id, found.path, *partition),
            *(size.size_bytes, size.offset_lag, "moving" if size.is_future else ""),
        )
        for partition, size in sorted(found.replicas.items())
        if not topics or partition.topic in topics
    ]


def _summed(rows: Sequence[Row]) -> list[Row]:
    sums: dict[Row, list[int]] = {}
    for broker_id, path, topic, _, size, _, _ in rows:
        at = sums.setdefault((broker_id, path, topic), [0, 0])
        at[0] += 1
        assert isinstance(size, int)
        at[1] += size
    return [(*key, *counted) for key, counted in sums.items()]


def _total(found: LogDir, topics: Collection[str]) -> Row:
    sizes = [
        size.size_bytes
        for partition, size in found.replicas.items()
        if not topics or partition.topic in topics
    ]
    return (
        *(found.broker_id, found.path, len(sizes), sum(sizes)),
        *(_known(found.total_bytes), _known(found.usable_bytes)),
        "" if found.error is ErrorCode.NONE else found.error.name,
    )


def _known(count: int) -> int | None:
    return None if count < 0 else count


def directory_fields(found: LogDir, topics: Collection[str] = ()) -> dict[str, object]:
    """Return the JSON fields of a directory without those of its replicas."""
    return {
        "directory": found.path,
        "error": None if found.error is ErrorCode.NONE else found.error.name,
        "disk_bytes": _known(found.total_bytes),
        "free_bytes": _known(found.usable_bytes),
        "bytes": _total(found, topics)[3],
    }


def _details(found: LogDir, topics: Collection[str]) -> dict[str, object]:
    return {
        "broker": found.broker_id,
        **directory_fields(found, topics),
        "replicas": [
            {
                "topic": topic,
                "partition": number,
                "bytes": size.size_bytes,
                "lag": size.offset_lag,
                "moving": size.is_future,
            }
            for (topic, number), size in sorted(found.replicas.items())
            if not topics or topic in topics
        ],
    }
