"""The options of one read or write: checked, typed, and without Spark.

Everything that can be said without a broker is said here, when the source is loaded. What differs
between batch and stream, and whether a source or a sink is meant, is known only later: see
`SourceOptions.check_batch`, `check_stream` and `check_source`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_klog._version import __version__
from pyspark_klog.client.addresses import read_addresses
from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.settings import ClientSettings
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError, OptionError
from pyspark_klog.spark.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    read_assignment,
    read_offsets,
    to_json_dict,
)
from pyspark_klog.spark.option_rows import (
    BY_KEY,
    OPTIONS,
    REFUSED_SETTINGS,
    SPARKS_OWN,
    Status,
)

_log = logging.getLogger(__name__)

_PREFIX = "kafka."
_SERVERS = "kafka.bootstrap.servers"
_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1

Bound = int | Offsets
"""Where to begin or end: EARLIEST, LATEST, or an offset for each partition."""


@dataclass(frozen=True)
class SourceOptions:
    """Options as values. ``starting`` is None where the user left it to batch or stream."""

    client: ClientSettings
    assigned: frozenset[TopicPartition] | None = None
    topics: tuple[str, ...] = ()
    starting: Bound | None = None
    ending: Bound | None = None
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    offset_attempts: int = 3
    offset_retry_interval_ms: int = 1_000
    idle_wait_ms: int = 50
    allow_slow: bool = False
    topic: str | None = None
    """The sink's topic."""

    @property
    def read_committed(self) -> bool:
        """Whether only committed records are read."""
        return self.client["isolation.level"] == "read_committed"

    def check_source(self) -> None:
        """:raises OptionError: if nothing is named that could be read"""
        if self.assigned is None and not self.topics:
            raise OptionError(
                "none of the options assign, subscribe, subscribePattern is given; expected one, "
                "as in option('subscribe', 'topicA,topicB')"
            )

    def check_stream(self) -> None:
        """:raises OptionError: for what a stream cannot have"""
        self.check_source()
        if self.ending is not None:
            raise OptionError("endingOffsets is not for streams: a stream has no end")

    def check_batch(self) -> None:
        """:raises OptionError: for what a batch cannot have"""
        self.check_source()
        if self.starting == LATEST:
            raise OptionError("startingOffsets is latest; a batch cannot begin at the end")
        if isinstance(self.starting, dict) and LATEST in self.starting.values():
            raise OptionError(
                "startingOffsets has -1 (latest); a batch cannot begin at the end: "
                f"{to_json_dict(self.starting)}"
            )
        if self.max_offsets_per_trigger is not None:
            _log.warning("option maxOffsetsPerTrigger has no effect in a batch")

    def for_stream(self) -> "SourceOptions":
        """With a stream's default start, ``latest``."""
        return replace(self, starting=LATEST) if self.starting is None else self

    def for_batch(self) -> "SourceOptions":
        """With a batch's defaults, from ``earliest`` to ``latest``."""
        return replace(
            self,
            starting=EARLIEST if self.starting is None else self.starting,
            ending=LATEST if self.ending is None else self.ending,
        )


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Check options as Spark gives them: text by case-insensitive key.

    :raises OptionError, OffsetError, SettingError: for the first that cannot be
    """
    options = {key.lower(): value for key, value in given.items()}
    _check_names(options)
    _check_one_strategy(options)
    result = SourceOptions(
        client=_client_settings(options),
        assigned=read_assignment(options["assign"]) if "assign" in options else None,
        topics=_topics(options),
        starting=_bound(options, "startingOffsets"),
        ending=_bound(options, "endingOffsets"),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        max_offsets_per_trigger=_number(options, "maxOffsetsPerTrigger", None, 1, _LONG_MAX),
        include_headers=_flag(options, "includeHeaders", False),
        poll_timeout_ms=_number_or(options, "kafkaConsumer.pollTimeoutMs", 120_000, 1),
        offset_attempts=_number_or(options, "fetchOffset.numRetries", 3, 1),
        offset_retry_interval_ms=_number_or(options, "fetchOffset.retryIntervalMs", 1_000, 0),
        idle_wait_ms=_number_or(options, "idleWaitMs", 50, 0),
        allow_slow=_flag(options, "allowSlow", False),
        topic=_topic(options),
    )
    _check_bounds(result)
    return result


def _check_names(options: Mapping[str, str]) -> None:
    """Refuse what is not supported yet and what looks misspelt; warn of what has no effect."""
    for key in options:
        row = BY_KEY.get(key)
        if row is not None and row.status is Status.LATER:
            raise OptionError(
                f"option {row.name} is not supported yet by klog {__version__}: leave it out"
            )
        if row is not None and row.status is Status.NONE:
            _log.debug("option=%s has no effect", row.name)
        if row is None and key not in SPARKS_OWN and not key.startswith(_PREFIX):
            from difflib import get_close_matches

            near = get_close_matches(key, list(BY_KEY), n=1, cutoff=0.82)
            if near:
                raise OptionError(f"there is no option {key}; did you mean {BY_KEY[near[0]].name}?")


def _check_one_strategy(options: Mapping[str, str]) -> None:
    given = [n for n in ("assign", "subscribe", "subscribePattern") if n.lower() in options]
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)} are given; expected exactly one of them")


def _client_settings(options: Mapping[str, str]) -> ClientSettings:
    settings = {k.removeprefix(_PREFIX): v for k, v in options.items() if k.startswith(_PREFIX)}
    plain = options.get("bootstrap.servers")
    servers = settings.get("bootstrap.servers")
    if plain is not None and servers is not None and plain.strip() != servers.strip():
        raise OptionError(
            f"{_SERVERS} is {servers!r} and bootstrap.servers is {plain!r}; expected one of them"
        )
    if plain is None and servers is None:
        raise OptionError(f"option {_SERVERS} is missing; expected host:port of a broker")
    settings["bootstrap.servers"] = servers if servers is not None else str(plain)
    for name, instead in REFUSED_SETTINGS.items():
        if name in settings:
            raise OptionError(f"option {_PREFIX}{name} is not supported: {instead}")
    read_addresses(settings["bootstrap.servers"], _SERVERS)
    return ClientSettings(settings, prefix=_PREFIX)


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("subscribe")
    if text is None:
        return ()
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise OptionError("option subscribe names no topic; expected a list like topicA,topicB")
    return topics


def _topic(options: Mapping[str, str]) -> str | None:
    topic = options.get("topic")
    if topic is None:
        return None
    if not topic.strip():
        raise OptionError("option topic is empty; expected the name of a topic")
    return topic.strip()


def _bound(options: Mapping[str, str], name: str) -> Bound | None:
    text = options.get(name.lower())
    if text is None:
        return None
    word = text.strip().lower()
    if word == "latest":
        return LATEST
    if word == "earliest":
        if name == "endingOffsets":
            raise OptionError("endingOffsets is earliest; expected latest or JSON with offsets")
        return EARLIEST
    if not text.strip().startswith("{"):
        words = "latest" if name == "endingOffsets" else "earliest, latest"
        raise OffsetError(
            f'{name} is {text!r}; expected {words}, or JSON like {{"topicA":{{"0":23,"1":-1}}}}'
        )
    return read_offsets(text, name)


def _check_bounds(options: SourceOptions) -> None:
    starting, ending = options.starting, options.ending
    if isinstance(ending, dict) and EARLIEST in ending.values():
        raise OptionError(
            f"endingOffsets has -2 (earliest); expected -1 (latest) or offsets: "
            f"{to_json_dict(ending)}"
        )
    for name, bound in (("startingOffsets", starting), ("endingOffsets", ending)):
        if isinstance(bound, dict) and options.assigned is not None:
            check_partitions(bound, options.assigned, name)
        if isinstance(bound, dict) and options.topics:
            other = sorted({p.topic for p in bound} ^ set(options.topics))
            if other:
                raise OffsetError(
                    f"{name} has topics {sorted({p.topic for p in bound})}; expected exactly those "
                    f"of subscribe, {sorted(options.topics)}"
                )
    if isinstance(starting, dict) and isinstance(ending, dict) and starting.keys() != ending.keys():
        check_partitions(ending, frozenset(starting), "endingOffsets")


def check_partitions(offsets: Offsets, expected: frozenset[TopicPartition], name: str) -> None:
    """Offsets must be given for exactly the partitions that are read.

    :raises OffsetError: saying what is missing and what is too much, with an example
    """
    missing = sorted(expected - offsets.keys())
    extra = sorted(offsets.keys() - expected)
    if missing or extra:
        parts = [f"without {', '.join(map(str, missing))}"] if missing else []
        parts += [f"with {', '.join(map(str, extra))}, which is not read"] if extra else []
        example = to_json_dict(
            dict.fromkeys(expected, LATEST if name == "endingOffsets" else EARLIEST)
        )
        raise OffsetError(
            f"{name} is given {' and '.join(parts)}; expected every partition that is read, as in "
            f"{str(example).replace(chr(39), chr(34))}"
        )


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name} is {text!r}; expected true or false")
    return text.strip().lower() == "true"


def _number(
    options: Mapping[str, str], name: str, default: int | None, low: int, high: int
) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        number = int(text.strip())
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise OptionError(f"option {name} is {text!r}; expected a whole number from {low} on")
    return number


def _number_or(options: Mapping[str, str], name: str, default: int, low: int) -> int:
    number = _number(options, name, default, low, _INT_MAX)
    return default if number is None else number


__all__ = ["OPTIONS", "Bound", "SettingError", "SourceOptions", "check_partitions", "read_options"]
