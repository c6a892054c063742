"""`klog produce`: writes lines of stdin or of a file as records of a topic."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import click

from klog_broker.cli.common.client_options import HELP, ClientOptions, with_client_and_json_options
from klog_broker.cli.common.errors import exit_unreadable
from klog_broker.cli.common.progress import Advance, progress_bar
from klog_broker.cli.records.record_lines import (
    BadLine,
    LineFormat,
    Lines,
    read_lines,
    separator_bytes,
)
from klog_broker.cli.records.record_writer import RecordWriter
from klog_broker.runtime.system.standard_input import is_readable_now
from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.client.settings.setting_rows import SETTINGS, Value
from pyspark_klog.errors import KlogError

_WRAPPING = 2
"""Reading the input fails if more bytes than this many times max.request.size have come without a
line end. Base 64 and the field names of JSON make a line longer than its record."""

_HELP = """Write each line of stdin, or of a file, as a record.

\b
  printf 'k1\\tv1\\n' | klog produce orders --key-separator '\\t'
  echo '{"key": "k", "value": "v", "headers": {"h": "x"}, "partition": 0}' |
    klog produce orders --json
"""


@click.command("produce", help=_HELP, context_settings=HELP)
@click.argument("topic", metavar="TOPIC")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read this file instead of stdin.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help=r"Each line is a key, this text (\t: a tab), and a value.",
)
@click.option(
    "--headers",
    "has_headers",
    is_flag=True,
    help="Each line begins with name:value,name:value and a tab.",
)
@click.option(
    "--null-value", metavar="TEXT", help="A key or value with this text becomes null (a tombstone)."
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Partition of records that name none.  [default: by key]",
)
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), help="Replicas that must have a record."
)
@click.option(
    "--compression",
    type=click.Choice(SETTINGS["compression.type"].choices),
    help="Codec of batches.",
)
@click.option(
    "--producer-property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Kafka's producer; repeatable.",
)
@with_client_and_json_options(
    "Each line is a JSON object of key, value, headers, partition, timestamp."
)
def command(
    asking: ClientOptions,
    topic: str,
    file: Path | None,
    key_separator: str | None,
    has_headers: bool,
    null_value: str | None,
    partition: int | None,
    acks: str | None,
    compression: str | None,
    properties: Sequence[str],
) -> None:
    """Run `klog produce`; the help text is _HELP."""
    if asking.as_json and (has_headers or (key_separator, null_value) != (None, None)):
        raise click.UsageError(
            "--json: expected no --headers, --key-separator or --null-value with it"
        )
    if key_separator == "":
        raise click.UsageError("--key-separator is empty; expected a text between key and value")
    form = LineFormat(
        asking.as_json,
        has_headers,
        None if key_separator is None else separator_bytes(key_separator),
        None if null_value is None else null_value.encode(),
    )
    asking = asking.with_properties(
        properties, _own_settings(asking, acks=acks, compression_type=compression)
    )
    with ExitStack() as stack:
        source: BinaryIO = sys.stdin.buffer
        advance: Advance = _nobody
        if file is not None:
            try:
                source = stack.enter_context(file.open("rb"))
                size = file.stat().st_size
            except OSError as error:
                exit_unreadable(error)
            advance = stack.enter_context(progress_bar(f"bytes to {topic}", size))
        client = stack.enter_context(asking.client())
        writer = RecordWriter(client, topic, partition)
        longest = _WRAPPING * client.settings.number("max.request.size")
        written = _write(writer, read_lines(source, longest, is_readable_now), form, advance)
    if sys.stderr.isatty():
        click.echo(f"klog: {counted(written)} written to {topic}", err=True)


def _own_settings(asking: ClientOptions, **given: str | None) -> dict[str, Value]:
    """Return the settings that this command's options set, and max.block.ms, whose default here is
    default.api.timeout.ms."""
    wait_ms = asking.settings["default.api.timeout.ms"]
    own: dict[str, Value] = {"max.block.ms": asking.settings.get("max.block.ms", wait_ms)}
    return own | {
        name.replace("_", "."): value for name, value in given.items() if value is not None
    }


def _write(
    writer: RecordWriter, chunks: Iterable[Lines], form: LineFormat, advance: Advance
) -> int:
    """Write all lines and wait until they are acknowledged. Return the number of records.

    :raises KlogError: at an invalid line, at Ctrl-C, or if records cannot be written; the message
        has the number of acknowledged records, unless the error is a SettingError
    """
    producer = writer.producer
    try:
        for lines in chunks:
            writer.write(form.rows(lines))
            if lines.pauses:
                # No more input is available now. A program that writes line by line may wait until
                # its record is written before it writes the next line.
                producer.flush()
            advance(lines.read_bytes)
        producer.flush()
    except SettingError:
        raise
    except BadLine as error:
        raise KlogError(f"{error}\n{_ended(producer)}, from lines before the invalid one") from None
    except KeyboardInterrupt:
        raise KlogError(f"interrupted: {_ended(producer)}") from None
    except KlogError as error:
        raise KlogError(f"{error}\n{counted(producer.written_records)} acknowledged") from error
    return producer.written_records


def _ended(producer: Producer) -> str:
    """Wait until the producer has written its records or has failed. Return a text with the number
    of written records, and with the error if there was one."""
    try:
        producer.flush()
    except KlogError as error:
        return f"{error}; {counted(producer.written_records)} acknowledged"
    return f"{counted(producer.written_records)} written"


def counted(records: int) -> str:
    """Return the number of records with the verb for it: "1 record is" or "2 records are"."""
    return "1 record is" if records == 1 else f"{records} records are"


def _nobody(count: int) -> None:
    """Do nothing: this callback takes the place of a progress bar when none is shown."""
