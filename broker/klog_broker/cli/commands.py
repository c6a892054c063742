"""The `klog` command itself: the list of subcommands, and the printing of their errors."""

import importlib
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from klog_broker.cli.common.errors import exit_with
from pyspark_klog._version import __version__
from pyspark_klog.errors import KlogError


class CommandEntry(NamedTuple):
    """A subcommand of `klog`."""

    module: str
    """The module that defines ``command``; imported only when the command is called."""
    help: str
    """The line of the command in `klog --help`."""


COMMANDS = {
    "broker": CommandEntry("klog_broker.cli.broker", "Run a broker in the foreground."),
    "topics": CommandEntry(
        "klog_broker.cli.topics.topics", "List, create, describe, alter and delete topics."
    ),
    "brokers": CommandEntry("klog_broker.cli.cluster.brokers", "List and describe brokers."),
    "leaders": CommandEntry("klog_broker.cli.cluster.leaders", "Elect leaders of partitions."),
    "groups": CommandEntry(
        "klog_broker.cli.groups.groups",
        "List, describe, reset and delete consumer groups.",
    ),
    "produce": CommandEntry("klog_broker.cli.records.produce", "Write lines as records."),
    "consume": CommandEntry("klog_broker.cli.records.consume", "Print records."),
    "perf": CommandEntry(
        "klog_broker.cli.perf.perf", "Measure how fast records are written and read."
    ),
    "configs": CommandEntry(
        "klog_broker.cli.topics.configs", "Show and change settings and quotas."
    ),
    "records": CommandEntry(
        "klog_broker.cli.records.delete_records", "Delete the records before an offset."
    ),
    "log-dirs": CommandEntry(
        "klog_broker.cli.topics.log_dirs", "Show how large topics are on the brokers' disks."
    ),
    "transactions": CommandEntry(
        "klog_broker.cli.transactions.transactions", "List, describe and abort transactions."
    ),
    "sinks": CommandEntry(
        "klog_broker.cli.groups.sinks",
        "List, describe and delete the progress of exactly-once sinks.",
    ),
    "lake": CommandEntry("klog_broker.cli.lake.lake", "Copy topics into Iceberg or Delta tables."),
    "dump-log": CommandEntry(
        "klog_broker.cli.files.dump_log", "Print the files of a log, without a broker."
    ),
    "verify": CommandEntry(
        "klog_broker.cli.files.verify", "Check the files of a data directory, without a broker."
    ),
    "completion": CommandEntry(
        "klog_broker.cli.completion", "Print a script for command completion in a shell."
    ),
}
"""The commands by name, in the order of `klog --help`."""


class LazyGroup(click.Group):
    """A group whose commands are modules, imported when a command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the commands' names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command's module, and return the command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(COMMANDS[cmd_name].module)
        except ModuleNotFoundError as error:
            raise click.ClickException(
                f"klog {cmd_name} needs the package {error.name}, which is not installed: "
                f"pip install 'pyspark-klog[{cmd_name}]'"
            ) from error
        found: click.Command = module.command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the help lines of COMMANDS, so that `klog --help` does not import the modules of
        all commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return matching commands from COMMANDS, without importing their modules, and options."""
        commands = [
            CompletionItem(name, help=entry.help)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; print a KlogError on stderr and exit."""
        try:
            return super().invoke(ctx)
        except KlogError as error:
            exit_with(error)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def command() -> None:
    """A Kafka-compatible log broker and its tools."""
