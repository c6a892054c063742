"""The options and settings of all commands that connect to brokers, and their output in JSON."""

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
"""click's context settings for a command or group: -h shows the help, like --help."""

_OPTIONS = (
    click.option(
        "--bootstrap-server",
        "servers",
        metavar="HOST:PORT",
        help=f"Brokers to connect to first, comma-separated.  [default: {DEFAULT_SERVER}]",
    ),
    click.option(
        "--command-config",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="A properties file with settings of Kafka's clients, such as for TLS and SASL.",
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
_JSON_HELP = "Print JSON for scripts instead of a table."


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The settings and output format of a command that connects to brokers."""

    settings: Mapping[str, Value]
    """The client's settings by name: the defaults, overridden by the file of --command-config,
    overridden by the other options."""
    as_json: bool

    def with_properties(self, texts: Iterable[str], own: Mapping[str, Value]) -> "ClientOptions":
        """Return a copy with a command's ``own`` settings, overridden by the ``name=value`` texts.

        :raises SettingError: for a text without ``=``, a name that Kafka's clients don't have, or a
        wrong value
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
        """Return a client of the cluster; it connects at its first request."""
        return BlockingClient(self.settings)

    def admin(self) -> Admin:
        """Return a client for the administration of topics."""
        return Admin(settings=self.settings)


def with_client_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the common options to a command; the command's first argument becomes a
    `ClientOptions`."""
    return with_client_and_json_options(_JSON_HELP)(command)


def with_client_and_json_options(
    json_help: str,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator like `with_client_options`, with another help text for --json."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run_with_client_options(
            *arguments: Any,
            servers: str | None,
            config_file: Path | None,
            timeout_ms: int | None,
            as_json: bool,
            **given: Any,
        ) -> None:
            settings = read_settings(servers, config_file, timeout_ms)
            command(ClientOptions(settings, as_json), *arguments, **given)

        options = (*_OPTIONS, click.option("--json", "as_json", is_flag=True, help=json_help))
        return functools.reduce(
            lambda decorated, option: option(decorated), options[::-1], run_with_client_options
        )

    return decorate


def read_settings(
    servers: str | None, config_file: Path | None, timeout_ms: int | None
) -> dict[str, Value]:
    """Return a client's settings: the defaults, overridden by the file of --command-config,
    overridden by the other options.

    :raises PropertiesError: if the file cannot be read
    :raises SettingError: if the file has a name that Kafka's clients don't have, or a wrong value
    """
    settings: dict[str, Value] = {
        "bootstrap.servers": DEFAULT_SERVER,
        "default.api.timeout.ms": DEFAULT_TIMEOUT_MS,
        "request.timeout.ms": _request_timeout_ms(DEFAULT_TIMEOUT_MS),
    }
    if config_file is not None:
        settings |= _settings_of(config_file)
    if servers is not None:
        settings["bootstrap.servers"] = servers
    if timeout_ms is not None:
        settings |= {
            "default.api.timeout.ms": timeout_ms,
            "request.timeout.ms": _request_timeout_ms(timeout_ms),
        }
    return settings


def _request_timeout_ms(timeout_ms: int) -> int:
    """Return the time limit of one request of a command that has the time limit ``timeout_ms``: the
    half, as in the defaults of Kafka's clients, so that a command can ask a second broker after one
    that did not answer."""
    return max(timeout_ms // 2, 1)


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
    """Print one line for each name: ``what`` (such as "deleted"), then the name. With ``as_json``
    print an object ``{what: names}`` instead, with _ for each space in ``what``."""
    if as_json:
        print_json({what.replace(" ", "_"): list(names)})
        return
    for name in names:
        click.echo(f"{what} {name}")


def print_json(value: object) -> None:
    """Print a value as JSON for scripts."""
    click.echo(json.dumps(value, indent=2))
