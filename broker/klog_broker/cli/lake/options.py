"""The options of several commands of `klog lake`, and what their texts mean."""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from klog_broker.cli.common.client_options import ClientOptions
from klog_broker.cli.records.start_offsets import StartPosition
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import SettingError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.lake_tables.copier import StartOffsets
from pyspark_klog.lake_tables.locations import Destination, parse_destination, table_names
from pyspark_klog.lake_tables.opening import open_table
from pyspark_klog.lake_tables.table import LakeTable
from pyspark_klog.properties import read_properties

_SIZE = re.compile(r"(\d{1,15})\s*([kMG]?)B?")
_UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}

_TABLE_OPTIONS = (
    click.option(
        "--topic",
        "topic_list",
        required=True,
        metavar="TOPIC[,TOPIC...]",
        help="The topics; each has a table of its own.",
    ),
    click.option(
        "--to",
        "destination",
        required=True,
        metavar="PLACE",
        help="Where the tables are: iceberg:CATALOG.NAMESPACE or delta:PATH.",
    ),
    click.option(
        "--catalog-config",
        "catalog_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A properties file with the settings of the Iceberg catalog (type, uri, warehouse), or"
        " with the storage options of delta-rs.",
    ),
)

from_option = click.option(
    "--from",
    "start_text",
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="Where the copy of a topic begins: earliest, latest, a time (2026-01-31T23:59:59.000,"
    ' UTC), or offsets as JSON, {"orders": {"0": 17}}.',
)


def with_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name topics and tables to a command; they become its argument
    ``tables``, a `TableNames`."""

    @functools.wraps(command)
    def run(
        *arguments: Any, topic_list: str, destination: str, catalog_file: Path | None, **given: Any
    ) -> None:
        tables = TableNames(topic_list, destination, catalog_file)
        command(*arguments, tables=tables, **given)

    return functools.reduce(lambda decorated, option: option(decorated), _TABLE_OPTIONS[::-1], run)


class TableNames:
    """The topics of a command and their tables."""

    def __init__(self, topic_list: str, destination: str, catalog_file: Path | None) -> None:
        """Read the options.

        :raises LakeError: for a wrong destination, and for two topics with one table name
        :raises PropertiesError: if the file cannot be read
        """
        topics = [each.strip() for each in topic_list.split(",") if each.strip()]
        if not topics:
            raise SettingError("--topic: expected one or more topics, separated by commas")
        self.names: Mapping[str, str] = table_names(topics)
        """By topic the name of its table."""
        self._place: Destination = parse_destination(destination)
        entries = () if catalog_file is None else read_properties(catalog_file)
        self._properties = {entry.name: entry.text for entry in entries}

    def open(self, topic: str) -> LakeTable:
        """Return a topic's table, which may not exist yet."""
        return open_table(self._place, self.names[topic], self._properties)


def read_committed(asking: ClientOptions) -> BlockingClient:
    """Return a client that reads committed records only.

    :raises SettingError: if the file of --command-config has another isolation level
    """
    given = asking.settings.get("isolation.level", "read_committed")
    if given != "read_committed":
        raise SettingError(
            f"isolation.level={given}: klog lake copies committed records only; remove the setting "
            "from the file of --command-config"
        )
    settings = {**asking.settings, "isolation.level": "read_committed"}
    return replace(asking, settings=settings).client()


def start_offsets(text: str) -> StartOffsets:
    """Return the function for the text of --from.

    :raises SettingError: if the text is neither a position nor offsets as JSON
    """
    if text.lstrip().startswith("{"):
        given = _read_offsets(text)
        return functools.partial(_given_offsets, given)
    position = StartPosition.of_text(text, option="--from")
    return position.positions


def _read_offsets(text: str) -> dict[str, dict[int, int]]:
    try:
        found = json.loads(text)
        offsets = {
            topic: {int(number): offset for number, offset in by_number.items()}
            for topic, by_number in found.items()
        }
    except (ValueError, AttributeError):
        offsets = {"": {-1: -1}}
    for by_number in offsets.values():
        if any(n < 0 or type(o) is not int or o < 0 for n, o in by_number.items()):
            raise SettingError(
                f"--from {text}: expected offsets from 0 on by topic and partition, such as "
                '{"orders": {"0": 17, "1": 0}}'
            )
    return offsets


def _given_offsets(
    given: Mapping[str, Mapping[int, int]],
    _client: BlockingClient,
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, int]:
    missing = [each for each in partitions if each.partition not in given.get(each.topic, {})]
    if missing:
        raise SettingError(
            f"--from has no offset for {', '.join(map(str, missing[:5]))}: expected one for each "
            "partition of the topic"
        )
    return {each: given[each.topic][each.partition] for each in partitions}


class SizeType(click.ParamType[int]):
    """A size in bytes: a whole number, with kB, MB or GB for powers of 1,024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the size in bytes."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value)
        size = 0 if match is None else int(match[1]) * _UNITS[match[2]]
        if size < 1:
            self.fail(f"{value} is no size: expected a number with kB, MB or GB", param, ctx)
        return size
