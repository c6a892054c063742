"""Exit codes, and the one sentence that goes with them. docs/operations.md has the table."""

import sys
from enum import IntEnum
from typing import NoReturn

import click

from klog_broker.cli.common.tables import shown
from pyspark_klog.client.errors import SettingError
from pyspark_klog.errors import KlogError
from pyspark_klog.properties import PropertiesError


class CommandExit(IntEnum):
    """The commands' exit codes; `klog broker` also has those of
    klog_broker/lifecycle/exit_codes.py."""

    OK = 0
    FAILED = 1
    USAGE = 2


def exit_with(error: KlogError) -> NoReturn:
    """Print the error's sentence, or sentences, on stderr and end."""
    # Imported here: it takes some 40 ms, and only errors need it in most commands.
    from klog_broker.config import ConfigError

    for line in str(error).splitlines():
        click.echo(f"klog: {shown(line)}", err=True)
    is_usage = isinstance(error, ConfigError | SettingError | PropertiesError)
    sys.exit(CommandExit.USAGE if is_usage else CommandExit.FAILED)


def exit_unreadable(error: OSError) -> NoReturn:
    """Name the file that cannot be read, and end; an error of stdout goes on to click."""
    if error.filename is None:
        raise error
    name = str(error.filename).encode(errors="backslashreplace").decode()
    click.echo(f"klog: cannot read {name}: {error.strerror}", err=True)
    sys.exit(CommandExit.USAGE)


def exit_unusable(error: KlogError) -> NoReturn:
    """Say what was given and what was expected, and end."""
    click.echo(f"klog: {error}", err=True)
    sys.exit(CommandExit.USAGE)
