"""What the commands that ask brokers have in common: options, settings, and answers for scripts."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from pyspark_klog.client.admin.topics import Admin
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.settings.setting_rows import SETTINGS, Value
from pyspark_klog.client.settings.unknown_settings import unknown_text
from pyspark_klog.properties import read_properties

DEFAULT_SERVER = "127.0.0.1:9092"
DEFAULT_TIMEOUT_MS = 10_000

HELP = {"help_option_names": ["-h", "--help"]}
"""Context settings of every command and group."""

_OPTIONS = (
    click.option(
        "--bootstrap-server",
        "servers",
        metavar="HOST:PORT",
        help=f"A broker to ask; several are comma-separated.  [default: {DEFAULT_SERVER}]",
    ),
    click.option(
        "--command-config",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="A properties file with settings of Kafka's clients, as for TLS and SASL.",
    ),
    click.option(
        "--timeout",
        "timeout_ms",
        metavar="MS",
        type=click.IntRange(min=1),
        help="How long to wait for brokers (default.api.timeout.ms)."
        f"  [default: {DEFAULT_TIMEOUT_MS}]",
    ),
)
_JSON_HELP = "JSON for scripts, not a table."


@dataclass(frozen=True, slots=True)
class Asking:
    """Whom a command asks, how, and how it shall answer."""

    settings: Mapping[str, Value]
    """A client's settings, which were checked."""
    as_json: bool

    def with_properties(self, texts: Iterable[str], own: Mapping[str, Value]) -> "Asking":
        """As this, with a command's ``own`` settings, then those written ``name=value``.

        :raises SettingError: for a name that Kafka's clients don't have, and for a wrong value
        """
        more = dict(own)
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals:
                raise SettingError(f"{text} is no setting; expected name=value")
            if name not in SETTINGS:
                raise SettingError(unknown_text(name))
            more[name] = value
        merged = {**self.settings, **more}
        ClientSettings(merged)
        return replace(self, settings=merged)

    def client(self) -> BlockingClient:
        """A client of the cluster; connections are made when something is asked."""
        return BlockingClient(self.settings)

    def admin(self) -> Admin:
        """As `client`, for the administration of topics."""
        return Admin(settings=self.settings)


def asks_brokers(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of those that ask brokers; its first argument is an `Asking`."""
    return asks_brokers_with(_JSON_HELP)(command)


def asks_brokers_with(json_help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `asks_brokers`, for a command whose --json means something of its own."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_asking(
            *arguments: Any,
            servers: str | None,
            config_file: Path | None,
            timeout_ms: int | None,
            as_json: bool,
            **given: Any,
        ) -> None:
            settings = read_settings(servers, config_file, timeout_ms)
            command(Asking(settings, as_json), *arguments, **given)

        options = (*_OPTIONS, click.option("--json", "as_json", is_flag=True, help=json_help))
        return functools.reduce(
            lambda decorated, option: option(decorated), options[::-1], with_asking
        )

    return decorate


def read_settings(
    servers: str | None, config_file: Path | None, timeout_ms: int | None
) -> dict[str, Value]:
    """The settings of a client: defaults, then the file, then the options.

    :raises PropertiesError: if the file cannot be read
    :raises SettingError: naming the file, and the line of a name that Kafka's clients don't have
    """
    settings: dict[str, Value] = {
        "bootstrap.servers": DEFAULT_SERVER,
        "default.api.timeout.ms": DEFAULT_TIMEOUT_MS,
        "request.timeout.ms": DEFAULT_TIMEOUT_MS,
    }
    if config_file is not None:
        settings |= _settings_of(config_file)
    if servers is not None:
        settings["bootstrap.servers"] = servers
    if timeout_ms is not None:
        settings |= {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}
    return settings


def _settings_of(file: Path) -> dict[str, Value]:
    entries = read_properties(file)
    unknown = [
        f"{entry.file}:{entry.line}: {unknown_text(entry.name)}"
        for entry in entries
        if entry.name not in SETTINGS
    ]
    if unknown:
        raise SettingError("\n".join(unknown))
    found: dict[str, Value] = {entry.name: entry.text for entry in entries}
    try:
        ClientSettings(found)
    except SettingError as error:
        raise SettingError(f"{file}: {error}") from error
    return found


def say(as_json: bool, what: str, names: Sequence[str]) -> None:
    """Print what was done with each name: a line each, or an object ``{what: names}``."""
    if as_json:
        print_json({what.replace(" ", "_"): list(names)})
        return
    for name in names:
        click.echo(f"{what} {name}")


def print_json(value: object) -> None:
    """Print a value for scripts."""
    click.echo(json.dumps(value, indent=2))
