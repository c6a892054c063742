"""What the commands that ask brokers have in common: options, settings, and answers for scripts."""

import json
from collections.abc import Sequence

import click

from klog_broker.cli.errors import exit_with
from pyspark_klog.client.blocking import BlockingClient
from pyspark_klog.errors import KlogError

SERVERS = click.option(
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT",
    default="127.0.0.1:9092",
    show_default=True,
    help="A broker to ask; several are comma-separated.",
)
TIMEOUT = click.option(
    "--timeout",
    "timeout_ms",
    metavar="MS",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="How long to wait for brokers (default.api.timeout.ms).",
)
JSON = click.option("--json", "as_json", is_flag=True, help="JSON for scripts, not a table.")


def client_settings(timeout_ms: int) -> dict[str, int]:
    """The settings of a client that waits so long for brokers."""
    return {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}


def open_client(servers: str, timeout_ms: int) -> BlockingClient:
    """A client that waits so long for brokers; ends the command if the address is wrong."""
    try:
        return BlockingClient({"bootstrap.servers": servers, **client_settings(timeout_ms)})
    except KlogError as error:
        exit_with(error)


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
