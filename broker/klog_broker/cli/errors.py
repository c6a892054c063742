"""Exit codes, and the one sentence that goes with them. docs/operations.md has the table."""

import sys
from enum import IntEnum
from typing import NoReturn

import click

from pyspark_klog.errors import KlogError


class CommandExit(IntEnum):
    """What the commands end with; `klog broker` adds those of klog_broker/exit_codes.py."""

    OK = 0
    FAILED = 1
    USAGE = 2


def exit_with(error: KlogError) -> NoReturn:
    """Say the error's sentence on stderr, or each of them, and end."""
    # Here, since most commands need nothing of the configuration, whose import takes some 40 ms.
    from klog_broker.config import ConfigError

    for line in str(error).splitlines():
        click.echo(f"klog: {line}", err=True)
    sys.exit(CommandExit.USAGE if isinstance(error, ConfigError) else CommandExit.FAILED)
