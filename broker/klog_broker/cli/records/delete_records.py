"""`klog records`: deletes records, on any broker with Kafka's protocol."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    with_client_options,
)
from klog_broker.cli.common.failures import Failures
from klog_broker.cli.common.tables import print_table
from pyspark_klog.client.admin.records_deletion import HIGH_WATERMARK, delete_records
from pyspark_klog.client.errors import SettingError
from pyspark_klog.ids import TopicPartition

_HIGHEST = 2**63 - 1


@click.group("records", context_settings=HELP)
def command() -> None:
    """Delete the records before an offset."""


@command.command("delete")
@click.option("--topic", metavar="TOPIC", help="A topic, with --partition and --before-offset.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="A partition of the topic; repeatable.",
)
@click.option(
    "--before-offset",
    type=click.IntRange(HIGH_WATERMARK, _HIGHEST),
    metavar="N",
    help="The first offset to keep; -1 deletes all records that readers can see.",
)
@click.option(
    "--offset-json-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Offsets of many partitions, in the format of kafka-delete-records.",
)
@with_client_options
def delete(
    asking: ClientOptions,
    topic: str | None,
    partitions: Sequence[int],
    before_offset: int | None,
    offset_json_file: Path | None,
) -> None:
    """Delete the records before an offset, permanently.

    The content of --offset-json-file is {"partitions": [{"topic": "t", "partition": 0, "offset":
    5}], "version": 1}.
    """
    by_options = (topic is not None, bool(partitions), before_offset is not None)
    if offset_json_file is not None and not any(by_options):
        before = read_offsets(offset_json_file)
    elif offset_json_file is None and all(by_options):
        assert topic is not None and before_offset is not None
        before = {TopicPartition(topic, number): before_offset for number in partitions}
    else:
        raise click.UsageError(
            "expected --offset-json-file, or --topic, --partition and --before-offset"
        )
    with asking.client() as client:
        found, refused = delete_records(client, before)
    failures = Failures()
    failures.add(error for _, error in sorted(refused.items()))
    if asking.as_json:
        print_json(
            [
                {"topic": topic, "partition": number, "low_watermark": first}
                for (topic, number), first in sorted(found.items())
            ]
        )
    elif found or not failures:
        rows = [(*partition, first) for partition, first in sorted(found.items())]
        print_table(("topic", "partition", "first offset"), rows)
    failures.raise_collected()


def read_offsets(file: Path) -> dict[TopicPartition, int]:
    """Read a file in the format of kafka-delete-records.

    :raises SettingError: if the file cannot be read, or is not in that format
    """
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise SettingError(f"{file} is no JSON: {error}") from None
    found: dict[TopicPartition, int] = {}
    try:
        if rows.get("version", 1) != 1:
            raise SettingError(f"{file} is of version {rows['version']}; expected 1")
        for row in rows["partitions"]:
            topic, number, offset = row["topic"], row["partition"], row["offset"]
            numbers_fit = type(number) is int and type(offset) is int
            if not isinstance(topic, str) or not numbers_fit:
                raise TypeError
            partition = TopicPartition(topic, number)
            if partition in found:
                raise SettingError(f"{file} names {partition} twice")
            if not 0 <= number < 2**31 or not HIGH_WATERMARK <= offset <= _HIGHEST:
                raise SettingError(
                    f"{file}: {partition} has offset {offset}; expected a partition from 0 to "
                    "2^31 - 1, and an offset from -1 to 2^63 - 1"
                )
            found[partition] = offset
    except (AttributeError, KeyError, TypeError):
        raise SettingError(
            f'{file}: expected {{"partitions": [{{"topic": "t", "partition": 0, "offset": 5}}], '
            '"version": 1}'
        ) from None
    if not found:
        raise SettingError(f"{file} names no partitions")
    return found
