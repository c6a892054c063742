"""Reads options in Spark's form, text by key, into `Options`.

Mistakes that can be seen without a broker raise an error here, when the source is loaded, except
those that depend on the query: a source or a sink, a batch or a stream (`options.py`).
"""

import json
import logging
from collections.abc import Mapping

from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import read_addresses
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.offsets import read_assignment, read_topic_limits
from pyspark_klog.spark.options.bounds import COMMITTED, check_bounds, read_bound
from pyspark_klog.spark.options.exactly_once import read_exactly_once
from pyspark_klog.spark.options.options import STRATEGIES, Options
from pyspark_klog.spark.options.rows import (
    BY_KEY,
    REFUSED_BY_SINK,
    REFUSED_BY_SOURCE,
    REMOVED,
    SPARKS_OWN,
    Status,
    Use,
    read_option,
    read_optional,
)

_log = logging.getLogger(__name__)

_PREFIX = "kafka."
_TWIN_PREFIX = "option."
"""Spark gives the OPTIONS of CREATE TABLE twice: under their names, and, with this prefix, as
properties of the table. klog ignores the names with the prefix."""
_SERVERS = "kafka.bootstrap.servers"
_ONE_SIDED = dict.fromkeys((*REFUSED_BY_SOURCE, *REFUSED_BY_SINK))
_LIMITS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "maxOffsetsPerTriggerByTopic",
    "lagDetails",
)


def read_options(given: Mapping[str, str]) -> Options:
    """Check options as Spark gives them: text by case-insensitive key.

    :raises OptionError, OffsetError, SettingError: for the first option that is wrong
    """
    options = {key.lower(): value for key, value in given.items()}
    options = {k: v for k, v in options.items() if not k.startswith(_TWIN_PREFIX)}
    _check_names(options)
    _check_one_strategy(options)
    on_no_match = read_option(options, "startingOffsetsByTimestampStrategy", str)
    result = Options(
        client=_client_settings(options),
        one_sided=tuple(name for name in _ONE_SIDED if _PREFIX + name in options),
        assigned=read_assignment(options["assign"]) if "assign" in options else None,
        topics=_topics(options),
        topic_pattern=_pattern(options),
        starting=read_bound(options, "starting"),
        latest_without_match=on_no_match == "latest",
        ending=read_bound(options, "ending"),
        fail_on_data_loss=read_option(options, "failOnDataLoss", bool),
        max_offsets_per_trigger=read_optional(options, "maxOffsetsPerTrigger", int),
        min_offsets_per_trigger=read_optional(options, "minOffsetsPerTrigger", int),
        max_trigger_delay_ms=read_option(options, "maxTriggerDelay", int),
        max_bytes_per_trigger=read_optional(options, "maxBytesPerTrigger", int),
        max_offsets_by_topic=_limits_by_topic(options),
        lag_details=read_option(options, "lagDetails", bool),
        limits=tuple(name for name in _LIMITS if name.lower() in options),
        min_partitions=read_optional(options, "minPartitions", int),
        max_records_per_partition=read_optional(options, "maxRecordsPerPartition", int),
        include_headers=read_option(options, "includeHeaders", bool),
        columns=_columns(options),
        keys=_keys(options),
        poll_timeout_ms=read_option(options, "kafkaConsumer.pollTimeoutMs", int),
        offset_attempts=read_option(options, "fetchOffset.numRetries", int),
        offset_retry_interval_ms=read_option(options, "fetchOffset.retryIntervalMs", int),
        idle_wait_ms=read_option(options, "idleWaitMs", int),
        allow_slow=read_option(options, "allowSlow", bool),
        commit_group_id=read_optional(options, "commitGroupId", str),
        committed_offsets_missing=read_option(options, "committedOffsetsMissing", str),
        topic=read_optional(options, "topic", str),
        timestamp_column=_timestamp_column(options),
        table=_table(options),
        dead_letter_topic=read_optional(options, "deadLetterTopic", str),
        dead_letter_max=read_optional(options, "deadLetterMax", int),
        exactly_once=read_exactly_once(options),
        path=options.get("path"),
        stopped=read_option(options, "stopped", bool),
    )
    check_bounds(result.starting, result.ending, result.assigned, result.topics)
    _check_limits(result)
    _check_committed(options, result)
    return result


def _check_names(options: Mapping[str, str]) -> None:
    """Refuse removed options, several paths, and names that look misspelt; log the options that
    have no effect."""
    if "paths" in options:
        raise OptionError(f"several paths are given, {options['paths']}; expected one directory")
    for name, instead in REMOVED.items():
        if name in options:
            raise OptionError(f"option {name} was removed: {instead}")
    if "topics" in options:
        raise OptionError(
            "there is no option topics; expected subscribe (names), subscribePattern or assign to "
            "read, topic to write"
        )
    for key in options:
        row = BY_KEY.get(key)
        if row is not None and row.status is Status.NONE:
            _log.debug("option=%s has no effect: %s", row.name, row.doc)
        if row is None and key not in SPARKS_OWN and not key.startswith(_PREFIX):
            from pyspark_klog.spark.options.unknown import meant_option

            near = meant_option(key, 0.82)
            if near:
                raise OptionError(f"there is no option {key}; did you mean {near}?")


def _check_one_strategy(options: Mapping[str, str]) -> None:
    given = [name for name in STRATEGIES if name.lower() in options]
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)} are given; expected exactly one of them")


def _limits_by_topic(options: Mapping[str, str]) -> dict[str, int]:
    text = options.get("maxoffsetspertriggerbytopic")
    return {} if text is None else read_topic_limits(text, "maxOffsetsPerTriggerByTopic")


def _check_limits(options: Options) -> None:
    assigned = {p.topic for p in options.assigned or ()}
    read = assigned or set(options.topics)
    others = sorted(options.max_offsets_by_topic.keys() - read) if read else []
    if others:
        raise OptionError(
            f"maxOffsetsPerTriggerByTopic names {', '.join(others)}, which is not read; expected "
            f"topics of {sorted(read)}"
        )
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger is {most}; expected the "
            "minimum to be at most the maximum"
        )


def _columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    columns = read_optional(options, "columns", tuple)
    without = columns is not None and "headers" not in columns
    if without and read_option(options, "includeHeaders", bool):
        raise OptionError(
            f"includeHeaders is true and columns is {options['columns']!r}; expected headers among "
            "the columns, or no includeHeaders"
        )
    return columns


def _keys(options: Mapping[str, str]) -> frozenset[bytes] | None:
    text = options.get("keys")
    if text is None:
        return None
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, list) or not given or not all(isinstance(key, str) for key in given):
        raise OptionError(
            f'option keys is {text!r}; expected a JSON list of texts like ["customer-1"]'
        )
    return frozenset(key.encode("utf-8", "surrogatepass") for key in given)


_BY_TIME = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)


def _check_committed(options: Mapping[str, str], read: Options) -> None:
    if options.get("startingoffsets", "").strip().lower() != COMMITTED:
        if "committedoffsetsmissing" in options:
            raise OptionError(
                "committedOffsetsMissing counts only together with startingOffsets=committed: "
                "leave it out, or set startingOffsets=committed"
            )
        return
    by_time = [name for name in _BY_TIME if name.lower() in options]
    if by_time:
        raise OptionError(
            f"startingOffsets is committed, with {' and '.join(by_time)}; expected one start: a "
            "group's offsets or a time"
        )
    if read.commit_group_id is None:
        raise OptionError(
            "startingOffsets is committed and there is no commitGroupId; expected the id of the "
            "consumer group whose offsets are meant"
        )


def _client_settings(options: Mapping[str, str]) -> ClientSettings:
    settings = {k.removeprefix(_PREFIX): v for k, v in options.items() if k.startswith(_PREFIX)}
    plain = options.get("bootstrap.servers")
    servers = settings.get("bootstrap.servers")
    if plain is not None and servers is not None and plain.strip() != servers.strip():
        raise OptionError(
            f"{_SERVERS} is {servers!r} and bootstrap.servers is {plain!r}; expected one of them"
        )
    if plain is not None:
        settings["bootstrap.servers"] = plain
    elif servers is None and "path" not in options:
        raise OptionError(
            f"option {_SERVERS} is missing; expected host:port of a broker{_of_a_table(options)}"
        )
    if "bootstrap.servers" in settings:
        read_addresses(settings["bootstrap.servers"], _SERVERS)
    return ClientSettings(settings, prefix=_PREFIX, note_on_unknown=_note_on_unknown)


def _note_on_unknown(name: str) -> str | None:
    """Return advice on a ``kafka.`` option that Kafka's clients lack, as a clause, or None."""
    from pyspark_klog.spark.options.unknown import note_on_unknown

    return note_on_unknown(name, _PREFIX)


def _of_a_table(options: Mapping[str, str]) -> str:
    """Advice to a user of SQL, which follows a message about a missing option.

    Empty if ``options`` has any option of klog's. If it has none, the query may read a table that
    was created in SQL: Spark does not pass the options of CREATE TABLE to a Python data source.
    """
    if any(key in BY_KEY or key.startswith(_PREFIX) for key in options):
        return ""
    return (
        " (a table of SQL needs options in CREATE TABLE, unless that statement lists the columns, "
        "and again in each query, since Spark does not give a Python source the table's options: "
        f"SELECT * FROM t WITH (`{_SERVERS}` = 'host:9092', subscribe = 'topicA'))"
    )


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("subscribe")
    if text is None:
        return ()
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise OptionError("option subscribe names no topic; expected a list like topicA,topicB")
    return topics


def _pattern(options: Mapping[str, str]) -> str | None:
    text = options.get("subscribepattern")
    if text is None:
        return None
    pattern = text.strip()
    if not pattern:
        raise OptionError(
            "option subscribePattern is empty; expected a regular expression, as in orders-.*"
        )
    from pyspark_klog.spark.options.java_regex import compile_java

    compile_java(pattern)
    return pattern


_BESIDE_TABLE = frozenset({"table", "kafka.bootstrap.servers", "bootstrap.servers", "allowslow"})


def _table(options: Mapping[str, str]) -> str | None:
    if "table" not in options:
        return None
    table = read_option(options, "table", str)
    rows = [BY_KEY[key] for key in options if key in BY_KEY and key not in _BESIDE_TABLE]
    beside = sorted(row.name for row in rows if row.use & Use.SOURCE)
    if beside:
        raise OptionError(
            f"option table reads the cluster's {table}, not records: leave out {', '.join(beside)}"
        )
    return table


def _timestamp_column(options: Mapping[str, str]) -> str | None:
    name = options.get("timestampcolumn")
    if name is not None and not name:
        raise OptionError("option timestampColumn is empty; expected the name of a column")
    return name
