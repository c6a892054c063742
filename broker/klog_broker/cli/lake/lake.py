"""`klog lake`: the group of its commands."""

import click

from klog_broker.cli.common.client_options import HELP
from klog_broker.cli.lake.care import restart, status, sweep
from klog_broker.cli.lake.run import run


@click.group("lake", context_settings=HELP)
def command() -> None:
    """Copy topics into Iceberg or Delta tables, each committed record exactly once."""


for each in (run, status, sweep, restart):
    command.add_command(each)
