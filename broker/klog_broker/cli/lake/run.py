"""`klog lake run`: copies topics into tables until it is stopped."""

import gc
import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import click
import pyarrow as pa

from klog_broker.cli.common.client_options import HELP, ClientOptions, with_client_options
from klog_broker.cli.common.progress import progress_bar
from klog_broker.cli.lake.metrics import serve_metrics
from klog_broker.cli.lake.options import (
    SizeType,
    TableNames,
    from_option,
    read_committed,
    start_offsets,
    with_tables,
)
from pyspark_klog.client.clock import monotonic_s
from pyspark_klog.client.errors import SettingError
from pyspark_klog.lake_tables.copier import CopySettings, TopicCopier
from pyspark_klog.lake_tables.parquet_file import Compression
from pyspark_klog.lake_tables.writer import LakeWriter, RollTimes

_CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_HELP = """Copy topics into tables until SIGTERM or Ctrl-C; with --once, all records that are
committed now.

A file is committed when it has --roll-bytes, and at the latest --roll-ms after the last commit. The
table itself says how far the topic is copied, so that the command may be killed and started again
at any time, also on another machine.

\\b
  klog lake run --topic orders --to delta:/lake
  klog lake run --topic orders --to iceberg:lake.klog --catalog-config catalog.properties
"""


@click.command("run", help=_HELP, context_settings=HELP)
@with_tables
@from_option
@click.option("--once", is_flag=True, help="Copy what is committed now, and end.")
@click.option(
    "--roll-bytes",
    type=SizeType(),
    default="128MB",
    show_default=True,
    metavar="SIZE",
    help="The size at which a file is complete.",
)
@click.option(
    "--roll-ms",
    type=click.IntRange(min=1),
    default=3_600_000,
    show_default=True,
    metavar="MS",
    help="The longest time between a record and its commit.",
)
@click.option(
    "--compression",
    default="zstd:1",
    show_default=True,
    metavar="CODEC[:LEVEL]",
    help=f"The compression of the files: {', '.join(_CODECS)}.",
)
@click.option(
    "--keep-snapshots",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="How many snapshots of an Iceberg table stay readable.",
)
@click.option(
    "--on-lost",
    type=click.Choice(("fail", "continue")),
    default="fail",
    show_default=True,
    help="Whether the command ends if brokers have deleted records that were not copied.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Serve metrics for Prometheus on this port of 127.0.0.1 (0: any free port).",
)
@with_client_options
def run(
    asking: ClientOptions,
    tables: TableNames,
    start_text: str,
    once: bool,
    roll_bytes: int,
    roll_ms: int,
    compression: str,
    keep_snapshots: int,
    on_lost: str,
    metrics_port: int | None,
) -> None:
    """Run `klog lake run`; the help text is _HELP."""
    settings = CopySettings(
        roll_bytes, _compression(compression), keep_snapshots, on_lost == "continue"
    )
    start = start_offsets(start_text)
    _log_on_stderr()
    with ExitStack() as stack:
        client = stack.enter_context(read_committed(asking))
        advance = stack.enter_context(progress_bar("copying records"))
        copiers = [
            TopicCopier(client, topic, tables.open(topic), settings, start, on_copied=advance)
            for topic in tables.names
        ]
        writer = LakeWriter(client, copiers, RollTimes(roll_bytes, roll_ms))
        if metrics_port is not None:
            stack.enter_context(serve_metrics(writer, metrics_port))
        # Collections of garbage need not look at pyiceberg's and pyarrow's modules again and again.
        gc.freeze()
        began_s = monotonic_s()
        with _until_signal():
            if once:
                writer.copy_all()
            else:
                writer.run()
    seconds = monotonic_s() - began_s
    for copier in copiers:
        counts = copier.counts
        click.echo(
            f"{copier.table.name}: {counts.records} records in {counts.files} files, "
            f"{counts.file_bytes} bytes, {seconds:.1f} s"
        )


class _Stopped(BaseException):
    """A signal has asked the command to stop. The class is no Exception, because only the command
    itself may catch it."""


@contextmanager
def _until_signal() -> Iterator[None]:
    """End the block at a signal. The next run copies again what is not committed at that moment."""

    def stop(_number: int, _frame: Any) -> NoReturn:
        for each in _STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise _Stopped

    before = {each: signal.signal(each, stop) for each in _STOP_SIGNALS}
    try:
        yield
    except _Stopped:
        pass
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _log_on_stderr() -> None:
    """Print klog's own lines from INFO on, and the warnings of other packages."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("pyspark_klog").setLevel(logging.INFO)


def _levels(codec: str) -> tuple[int, int]:
    """Return the lowest and the highest level of a codec; (0, 0) for one without levels."""
    if codec == "none" or not pa.Codec.supports_compression_level(codec):
        return 0, 0
    return pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)


def _compression(text: str) -> Compression:
    codec, _, level = text.partition(":")
    expected = f"expected one of {', '.join(_CODECS)}, with :LEVEL if it has levels"
    if codec not in _CODECS or (level and not level.isdecimal()):
        raise SettingError(f"--compression {text}: {expected}")
    number = int(level) if level else None
    if number is not None:
        low, high = _levels(codec)
        if not low <= number <= high:
            raise SettingError(f"--compression {text}: expected a level from {low} to {high}")
    return Compression(codec, number)
