"""The exit codes of klog's commands (docs/operations.md lists them), and the printing of errors."""

import sys
from enum import IntEnum
from typing import NoReturn

import click

from klog_broker.cli.common.tables import shown
from pyspark_klog.client.errors import SettingError
from pyspark_klog.errors import KlogError
from pyspark_klog.properties import PropertiesError


class CommandExit(IntEnum):
    """The exit codes of commands; `klog broker` also has those of
    klog_broker/lifecycle/exit_codes.py."""

    OK = 0
    FAILED = 1
    USAGE = 2


def exit_with(error: KlogError) -> NoReturn:
    """Print the error's message on stderr and exit."""
    # Imported late: the import takes about 40 ms, and most commands need it only for errors.
    from klog_broker.config import ConfigError

    for line in str(error).splitlines():
        click.echo(f"klog: {shown(line)}", err=True)
    is_usage = isinstance(error, ConfigError | SettingError | PropertiesError)
    sys.exit(CommandExit.USAGE if is_usage else CommandExit.FAILED)


def exit_unreadable(error: OSError) -> NoReturn:
    """Report the file that cannot be read, and exit."""
    report_unreadable(error)
    sys.exit(CommandExit.USAGE)


def report_unreadable(error: OSError) -> None:
    """Report the file that cannot be read. An error without a file name comes from writing to
    stdout; it is raised again, because click handles such errors."""
    if error.filename is None:
        raise error
    name = str(error.filename).encode(errors="backslashreplace").decode()
    click.echo(f"klog: cannot read {name}: {error.strerror}", err=True)


def exit_unusable(error: KlogError) -> NoReturn:
    """Print the message of an error in the command's arguments, and exit."""
    click.echo(f"klog: {error}", err=True)
    sys.exit(CommandExit.USAGE)
