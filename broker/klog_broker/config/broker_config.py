"""The configuration of a broker, in layers: each layer overrides the earlier ones.

The layers are the defaults, a properties file, options of the command line (``--set``), and changes
while the broker runs (see setting_changes.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from klog_broker.config.cluster import (
    GENERATED,
    check_cluster,
    check_standalone,
    inter_broker_listener,
    joins_cluster,
)
from klog_broker.config.listeners import (
    Listener,
    check_advertised,
    check_listeners,
    listener_names,
    parse_address,
    parse_listeners,
    parse_protocol_map,
    with_port,
)
from klog_broker.config.properties import Entry, parse_properties, read_properties
from klog_broker.config.refused_settings import REFUSED, REFUSED_UNLESS, refusals
from klog_broker.config.setting_rows import SETTINGS
from klog_broker.config.settings_without_effect import (
    REMOVED,
    is_secret_name,
    reason_without_effect,
)
from klog_broker.config.types import (
    LONG_MAX,
    ConfigError,
    Password,
    Setting,
    Value,
    nearest,
)
from klog_broker.runtime.system.identity import host_name


class Origin(Enum):
    """The layer that a setting's value comes from."""

    DEFAULT = "default"
    FILE = "file"
    COMMAND_LINE = "command line"
    ALL_BROKERS = "changed for all brokers"
    THIS_BROKER = "changed for this broker"


@dataclass(frozen=True)
class ValueSource:
    """The origin of a setting's value. `text` names the origin in messages: ``default``,
    ``FILE:LINE``, an option's name such as ``--set``, or (for a change) the text of `origin`."""

    origin: Origin
    text: str

    def __str__(self) -> str:
        return self.text


# The part of log.cleaner.dedupe.buffer.size for each cleaner thread must be larger than this. Kafka
# checks the same, though its error message says "at least".
_DEDUPE_BYTES_PER_THREAD = 1 << 20

STRICT = "strict.configs=true refuses such settings: take it out."
"""With strict.configs, a setting without effect in klog is an error. This sentence ends the error
message, after the reason why the setting has no effect."""

_DEFAULT = ValueSource(Origin.DEFAULT, "default")


@dataclass(frozen=True)
class _Given:
    text: str
    source: ValueSource


class BrokerConfig(Mapping[str, Any]):
    """All known settings of a broker, checked; immutable.

    ``config["log.retention.ms"]`` is the effective value, of the setting's type (bool, int, float,
    str, tuple of str, or Password). The value is None if the setting and its fallbacks (the
    settings from which it takes its value if it is not set) are not set and have no default. The
    name of a setting without effect in klog, or of an unknown setting, raises KeyError.
    """

    def __init__(
        self,
        given: Mapping[str, _Given],
        changed: Sequence[Mapping[str, _Given]] = (),
        generated_id: int | None = None,
        *,
        overridden: Sequence[str] = (),
    ) -> None:
        """Use `load` to read files and options.

        `given` has the settings of the broker's start, from the file and the command line: for each
        name the text and source that apply. `changed` are the layers of changes to the running
        broker, which override `given`; the first of these layers that has a name gives the name's
        value. `generated_id` is the broker's id, if the settings leave the id to ZooKeeper.
        `overridden` becomes the attribute of this name.
        """
        self._layers = (*changed, given)
        self.overridden = tuple(overridden)
        """One text for each setting of a given name that an option of another name overrides, to
        be logged once."""
        self._given: dict[str, _Given] = {}
        for layer in reversed(self._layers):
            self._given |= layer
        self._own: dict[str, Value] = {}
        self._warnings: list[str] = []
        self._parse_all()
        self._effective = {name: self._resolve(row) for name, row in SETTINGS.items()}
        self.joins_cluster = joins_cluster(self._effective)
        """Whether the broker joins a cluster through ZooKeeper; if not, it is standalone."""
        if self.joins_cluster and not self._own.keys() & {"broker.id", "node.id"}:
            self._effective["broker.id"] = self._effective["node.id"] = GENERATED
        limit_by_difference(self._effective, "log.message.timestamp")
        self.listeners, self.advertised_listeners = self._parse_listeners()
        self.metrics_listener = self._parse_metrics_listener()
        """Host (empty for all interfaces) and port of the metrics page; None if there is none."""
        self.log_dirs = self._parse_log_dirs()
        self._check()
        self._generated_id = generated_id
        if generated_id is not None:
            self._effective["broker.id"] = self._effective["node.id"] = generated_id

    @classmethod
    def load(
        cls,
        path: Path | str | None = None,
        overrides: Iterable[str] | Mapping[str, str] = (),
        *,
        text: str | None = None,
        port: int | None = None,
        data: Path | str | None = None,
    ) -> "BrokerConfig":
        """Read a properties file (and `text` in the same syntax), then apply the other arguments.

        `overrides` are ``name=value`` texts or a mapping (``--set``). `port` replaces the port of
        the first listener that klog opens (``--port``). `data` becomes the only data directory
        (``--data``).
        """
        entries = read_properties(Path(path)) if path is not None else []
        if text is not None:
            entries += parse_properties(text)
        given = {entry.name: _from_entry(entry) for entry in entries}
        if isinstance(overrides, Mapping):
            pairs = list(overrides.items())
        else:
            pairs = [_split_override(item) for item in overrides]
        for name, value in pairs:
            given[name] = _Given(value, ValueSource(Origin.COMMAND_LINE, "--set"))
        overridden = []
        if data is not None:
            for name in ("log.dirs", "log.dir"):
                item = given.get(name)
                if item is not None and item.text.strip() != str(data):
                    overridden.append(f"--data {data} overrides {name}={item.text} ({item.source})")
            given["log.dirs"] = _Given(str(data), ValueSource(Origin.COMMAND_LINE, "--data"))
        if port is not None:
            listeners = given.get("listeners")
            current = listeners.text if listeners else str(SETTINGS["listeners"].default)
            controllers = given.get("controller.listener.names")
            names = listener_names(controllers.text if controllers else "")
            given["listeners"] = _Given(
                with_port(current, port, names), ValueSource(Origin.COMMAND_LINE, "--port")
            )
        return cls(given, overridden=overridden)

    def with_changes(
        self, all_brokers: Mapping[str, str], this_broker: Mapping[str, str]
    ) -> "BrokerConfig":
        """Return the settings from the file and the command line, overridden by changes to the
        running broker.

        `this_broker` overrides `all_brokers`. Raises ConfigError, as for a file, if a change is
        invalid.
        """
        layers = []
        for texts, origin in (
            (this_broker, Origin.THIS_BROKER),
            (all_brokers, Origin.ALL_BROKERS),
        ):
            source = ValueSource(origin, origin.value)
            layers.append({name: _Given(text, source) for name, text in texts.items()})
        return BrokerConfig(self._layers[-1], layers, self._generated_id)

    def with_generated_id(self, broker_id: int) -> "BrokerConfig":
        """Return these settings with a broker id that is not configured: ZooKeeper generated it, or
        the data directories have stored it since."""
        return BrokerConfig(self._layers[-1], self._layers[:-1], broker_id)

    @cached_property
    def inter_broker_listener(self) -> str:
        """The name of the listener for connections between the brokers of a cluster."""
        return inter_broker_listener(self, self.advertised_listeners).name

    def __getitem__(self, name: str) -> Any:
        return self._effective[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._effective)

    def __len__(self) -> int:
        return len(self._effective)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One text for each accepted setting without effect, to be logged once."""
        return tuple(self._warnings)

    def own_value(self, name: str) -> Value:
        """Return the value set under exactly this name, or else this setting's default.

        Other settings from which the setting takes its value if it is not set (the same time in a
        coarser unit, for example) are ignored.
        """
        return self._own[name] if name in self._own else SETTINGS[name].default

    def is_set(self, name: str) -> bool:
        """Return whether this name is set in any layer above the defaults."""
        return name in self._given

    def source_of(self, name: str) -> ValueSource:
        """Return the source of the value that is set under exactly this name, or of its default."""
        return self._given[name].source if name in self._given else _DEFAULT

    def given_values(self, name: str) -> list[tuple[Origin, Value]]:
        """Return (origin, value) for each layer that sets exactly this name; the first value is the
        one that applies."""
        row = SETTINGS[name]
        found = [layer[name] for layer in self._layers if name in layer]
        return [(each.source.origin, row.parse(each.text)) for each in found]

    def without_effect(self) -> dict[str, str]:
        """Return the configured texts, by name, of Kafka's settings that have no effect in klog;
        secrets are hidden."""
        return {
            name: repr(Password("")) if is_secret_name(name) else item.text
            for name, item in self._given.items()
            if name not in SETTINGS
        }

    def _parse_all(self) -> None:
        """Parse all given settings; raise one ConfigError with a line for each refused setting."""
        problems: list[str] = []
        for name, item in self._given.items():
            try:
                self._parse_setting(name, item)
            except ConfigError as error:
                problems.append(str(error))
        problems += [
            f"{self._given[refusal.name].source}: {refusal.text}"
            for refusal in refusals({name: item.text for name, item in self._given.items()})
        ]
        if self._own.get("strict.configs"):
            problems += [f"{warning} {STRICT}" for warning in self._warnings]
        if problems:
            raise ConfigError("\n".join(problems))

    def _parse_setting(self, name: str, item: _Given) -> None:
        row = SETTINGS.get(name)
        if row is not None:
            try:
                self._own[name] = row.parse(item.text)
            except ConfigError as error:
                raise ConfigError(f"{item.source}: {error}") from None
            return
        if name in REFUSED or (name in REFUSED_UNLESS and not item.text.strip()):
            return
        reason = reason_without_effect(name)
        if reason is not None:
            self._warnings.append(f"{item.source}: {name} has no effect here. {reason}")
            return
        raise ConfigError(f"{item.source}: {unknown_name(name)}")

    def _resolve(self, row: Setting) -> Value:
        """Return the effective value: of the setting, or of its first fallback that is set.

        The fallbacks are the settings that give the value if this one is not set, such as the same
        time in a coarser unit. If none is set, return the first default of the setting and its
        fallbacks that is not None.
        """
        chain = ((row.name, 1), *row.fallbacks)
        for name, factor in chain:
            if name in self._own:
                return _scaled(self._own[name], factor)
        for name, factor in chain:
            default = SETTINGS[name].default
            if default is not None:
                return _scaled(default, factor)
        return None

    def _parse_listeners(self) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
        protocols = parse_protocol_map(self["listener.security.protocol.map"])
        controllers = listener_names(self["controller.listener.names"] or "")
        listeners = parse_listeners("listeners", self["listeners"], protocols, controllers)
        check_listeners(listeners)
        text = self["advertised.listeners"]
        if text is not None and text.strip():
            advertised = parse_listeners("advertised.listeners", text, protocols, controllers)
        else:
            advertised = tuple(
                listener._replace(host=listener.host or host_name()) for listener in listeners
            )
        check_advertised(advertised, listeners)
        return listeners, advertised

    def _parse_metrics_listener(self) -> tuple[str, int] | None:
        text = self["metrics.listener"]
        if text is None or not text.strip():
            return None
        host, port = parse_address("metrics.listener", text)
        if port and any(each.port == port and each.host in ("", host) for each in self.listeners):
            raise ConfigError(f"metrics.listener: port {port} is the port of one of `listeners`")
        return host, port

    def _parse_log_dirs(self) -> tuple[Path, ...]:
        parts = [part.strip() for part in str(self["log.dirs"]).split(",")]
        paths = [Path(part) for part in parts if part]
        if not paths:
            raise ConfigError("log.dirs is empty: name at least one directory")
        resolved = [path.absolute() for path in paths]
        for path in resolved:
            if resolved.count(path) > 1:
                raise ConfigError(f"log.dirs names {path} twice")
        return tuple(paths)

    def _check(self) -> None:
        """Raise ConfigError for values with which the broker cannot work, and for settings that
        contradict each other."""
        own = self._own
        if "broker.id" in own and "node.id" in own and own["broker.id"] != own["node.id"]:
            raise ConfigError(
                f"broker.id={own['broker.id']} and node.id={own['node.id']} both name this broker:"
                " set one of them, or both to one number"
            )
        if self["log.retention.ms"] == 0:
            raise ConfigError(
                "log.retention.ms (or its minutes or hours) is 0: it must be -1 (for ever) or"
                " at least 1"
            )
        if 0 < self["queued.max.request.bytes"] < self["socket.request.max.bytes"]:
            raise ConfigError(
                f"queued.max.request.bytes={self['queued.max.request.bytes']} leaves no room for"
                f" a request of socket.request.max.bytes={self['socket.request.max.bytes']}"
            )
        if self["group.min.session.timeout.ms"] > self["group.max.session.timeout.ms"]:
            raise ConfigError(
                "group.min.session.timeout.ms"
                f"={self['group.min.session.timeout.ms']} is above group.max.session.timeout.ms"
                f"={self['group.max.session.timeout.ms']}"
            )
        overrides = parse_per_ip_overrides(self["max.connections.per.ip.overrides"])
        if self["max.connections.per.ip"] == 0 and not overrides:
            raise ConfigError(
                "max.connections.per.ip=0 lets nobody in: name the addresses that may connect in"
                " max.connections.per.ip.overrides"
            )
        if self.joins_cluster:
            if own.keys() >= {"inter.broker.listener.name", "security.inter.broker.protocol"}:
                raise ConfigError(
                    "inter.broker.listener.name and security.inter.broker.protocol are both set:"
                    " set one of them"
                )
            check_cluster(self, self.advertised_listeners)
        else:
            check_standalone(self)
        self._check_cleaner()

    def _check_cleaner(self) -> None:
        """Raise ConfigError for values of log.cleaner.* with which Kafka's log cleaner does not
        start or cannot work."""
        threads, buffer_bytes = self["log.cleaner.threads"], self["log.cleaner.dedupe.buffer.size"]
        if threads == 0:
            raise ConfigError(
                "log.cleaner.threads=0 is refused: it must be at least 1;"
                " log.cleaner.enable=false turns the cleaner off"
            )
        if buffer_bytes // threads <= _DEDUPE_BYTES_PER_THREAD:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size={buffer_bytes} is refused: it must be at least"
                f" {threads * (_DEDUPE_BYTES_PER_THREAD + 1)}, which is more than 1 MiB for each of"
                f" log.cleaner.threads={threads}"
            )
        load_factor = self["log.cleaner.io.buffer.load.factor"]
        if not 0 < load_factor <= 1:
            raise ConfigError(
                f"log.cleaner.io.buffer.load.factor={load_factor} is refused: it must be above 0"
                " and at most 1"
            )
        if self["log.cleaner.io.max.bytes.per.second"] == 0:
            raise ConfigError(
                "log.cleaner.io.max.bytes.per.second=0 is refused, since nothing would ever be"
                " compacted: it must be above 0, or -1 for no limit"
            )
        shortest_ms = self["log.cleaner.min.compaction.lag.ms"]
        longest_ms = self["log.cleaner.max.compaction.lag.ms"]
        if shortest_ms > longest_ms:
            raise ConfigError(
                f"log.cleaner.min.compaction.lag.ms={shortest_ms} is above"
                f" log.cleaner.max.compaction.lag.ms={longest_ms}"
            )


def parse_per_ip_overrides(text: str) -> dict[str, int]:
    """Parse max.connections.per.ip.overrides, ``host:number,...``, into limits for the number of
    connections, by host.

    An IPv6 address may be in brackets.
    """
    limits = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        host, colon, number = item.rpartition(":")
        if not (colon and host and number.strip().isascii() and number.strip().isdigit()):
            raise ConfigError(f"max.connections.per.ip.overrides: {item!r} is not host:number")
        limits[host.strip().strip("[]")] = int(number)
    return limits


def limit_by_difference(values: dict[str, Value], prefix: str) -> None:
    """Give each timestamp limit that has the default value (set or not) the value of the older
    setting ``PREFIX.difference.max.ms``.

    KIP-937 replaced that setting by the limits ``PREFIX.before.max.ms`` and
    ``PREFIX.after.max.ms``.
    """
    for side in ("before", "after"):
        if values[f"{prefix}.{side}.max.ms"] == LONG_MAX:
            values[f"{prefix}.{side}.max.ms"] = values[f"{prefix}.difference.max.ms"]


def _from_entry(entry: Entry) -> _Given:
    return _Given(
        entry.text, ValueSource(Origin.FILE, f"{entry.file or 'properties'}:{entry.line}")
    )


def _split_override(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--set {text}: expected name=value, as --set log.segment.bytes=1048576")
    return name.strip(), value


def _scaled(value: Value, factor: int) -> Value:
    """Convert a value to a finer unit by `factor`; a negative value becomes -1 (no limit)."""
    if factor == 1 or not isinstance(value, int):
        return value
    return value * factor if value >= 0 else -1


def unknown_name(name: str, rows: Mapping[str, Setting] = SETTINGS, kind: str = "setting") -> str:
    """Return an error message for a name that is not in `rows`; with a hint, such as the most
    similar name in `rows`."""
    if rows is SETTINGS and name in REMOVED:
        return f"{name} is a setting that Kafka dropped: use {REMOVED[name]}"
    near = nearest(name, rows)
    hint = f"; did you mean {near}?" if near else "; docs/configuration.md lists all"
    return f"{name} is not a {kind} that klog or Kafka knows{hint}"
