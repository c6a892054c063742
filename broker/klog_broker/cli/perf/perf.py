"""`klog perf`: measures how fast a cluster writes and reads records."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    with_client_options,
)
from klog_broker.cli.common.progress import progress_bar
from klog_broker.cli.common.tables import print_table
from klog_broker.cli.perf.batches import (
    BatchSource,
    random_payloads,
    read_payloads,
    records_a_batch,
)
from klog_broker.cli.perf.consumer_perf import measure_reading
from klog_broker.cli.perf.figures import PERCENTILES, line
from klog_broker.cli.perf.producer_perf import Pace, PrintFigures, measure_writing
from pyspark_klog.client.producer.row_encoder import compression_level
from pyspark_klog.errors import KlogError
from pyspark_klog.records.compression import Codec

_PAYLOADS = 10_000
"""The number of random values that `klog perf produce` makes and then writes in turn; fewer if all
of them would take more than `_PAYLOAD_BYTES`."""
_PAYLOAD_BYTES = 1 << 24
_BATCHES_A_SECOND = 100
"""With --throughput, a batch has at most the records of one second divided by this number (but at
least one record), so that records are sent evenly and not in rare, large batches."""


_NAMES = {
    "records_per_second": "records/s",
    "mb": "MB",
    "mb_per_second": "MB/s",
    **{f"{name}_ms": f"{name.replace('_', '.')} ms" for name in ("avg", "max", *PERCENTILES)},
}
"""The names of figures in the printed table, where they differ from the names in JSON."""


@click.group("perf", context_settings=HELP)
def command() -> None:
    """Measure how fast records are written and read."""


@command.command("produce")
@click.option(
    "--topic", required=True, metavar="TOPIC", help="The topic to write to; it should exist."
)
@click.option(
    "--num-records",
    required=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of records.",
)
@click.option(
    "--record-size", type=click.IntRange(min=1), metavar="BYTES", help="Size of each random value."
)
@click.option(
    "--payload-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take the values from this file instead, in turn.",
)
@click.option(
    "--payload-delimiter",
    default="\n",
    metavar="TEXT",
    help="Text between values.  [default: a line end]",
)
@click.option(
    "--throughput",
    type=click.FloatRange(min=-1),
    default=-1,
    metavar="N",
    help="The most records per second.  [default: no limit]",
)
@click.option(
    "--producer-property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Kafka's producer; repeatable.",
)
@with_client_options
def produce(
    asking: ClientOptions,
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: Path | None,
    payload_delimiter: str,
    throughput: float,
    properties: Sequence[str],
) -> None:
    """Write records, and show the rate and the latency of their acknowledgements.

    A few batches are made and sent many times, so that making them takes hardly any of the measured
    time. A batch has as many records as fit into batch.size bytes uncompressed (default 1000000; in
    Kafka 16384), but at least one. With a low --throughput it has fewer.
    """
    if (record_size is None) == (payload_file is None):
        raise click.UsageError("expected one of --record-size and --payload-file")
    if payload_file is not None:
        payloads = read_payloads(payload_file, payload_delimiter)
        size = max(map(len, payloads))
    else:
        size = record_size or 1
        payloads = random_payloads(size, max(min(_PAYLOADS, _PAYLOAD_BYTES // size), 1))
    with asking.with_properties(properties, {}).client() as client:
        settings = client.settings
        most_bytes = settings.number("max.request.size")
        batch_records = records_a_batch(size, min(settings.number("batch.size"), most_bytes))
        if throughput > 0:
            batch_records = min(batch_records, max(int(throughput / _BATCHES_A_SECOND), 1))
        codec = Codec[settings.text("compression.type").upper()]
        batches = BatchSource(payloads, codec, compression_level(settings))
        pace = Pace(num_records, batch_records, throughput if throughput > 0 else None)
        with progress_bar(f"records to {topic}", num_records) as advance:
            figures = measure_writing(client, topic, batches, pace, advance, _say(asking))
    _print(asking, figures)


@command.command("consume")
@click.option(
    "--topic", required=True, metavar="TOPIC", help="The topic to read from its beginning."
)
@click.option(
    "--messages",
    required=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="The least number of records to read.",
)
@click.option(
    "--timeout-ms",
    "idle_ms",
    type=click.IntRange(min=1),
    default=10_000,
    metavar="MS",
    help="Give up after this long without records.  [default: 10000]",
)
@click.option(
    "--consumer-property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Kafka's consumer; repeatable.",
)
@with_client_options
def consume(
    asking: ClientOptions, topic: str, messages: int, idle_ms: int, properties: Sequence[str]
) -> None:
    """Read records, and show the rate.

    Batches are checked (check.crcs), and their records are counted without decoding them (except in
    the old formats v0 and v1). The MB are the sizes of the batches as stored, perhaps compressed.
    """
    with (
        asking.with_properties(properties, {}).client() as client,
        progress_bar(f"records of {topic}", messages) as advance,
    ):
        figures = measure_reading(client, topic, messages, idle_ms, advance, _say(asking))
    _print(asking, figures)
    if figures["records"] < messages:
        raise KlogError(
            f"only {figures['records']:.0f} of {messages} records came: none for {idle_ms} ms "
            "(--timeout-ms), or Ctrl-C was pressed"
        )


def _say(asking: ClientOptions) -> PrintFigures:
    """Return a function that prints an interval's figures (counts and rates, and for writes
    latencies). The function prints nothing with --json, or if stderr is a terminal, which may show
    a progress bar."""

    def say(figures: dict[str, float]) -> None:
        if not asking.as_json and not sys.stderr.isatty():
            click.echo(line(figures))

    return say


def _print(asking: ClientOptions, figures: dict[str, float]) -> None:
    if asking.as_json:
        print_json(figures)
        return
    # One figure per line: side by side they are too wide for a terminal.
    rows = [(_NAMES.get(name, name), value) for name, value in figures.items()]
    print_table(("figure", "value"), rows)
