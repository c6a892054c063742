"""`klog` itself: the list of commands, and how their errors reach the user."""

import importlib
from typing import Any

import click
from click.shell_completion import CompletionItem

from klog_broker.cli.errors import exit_with
from pyspark_klog._version import __version__
from pyspark_klog.errors import KlogError

#: By command: its line in `klog --help`. A command's module is imported only when it is called.
COMMANDS = {
    "broker": "Run a broker in the foreground.",
    "topics": "List, create, describe, alter and delete topics.",
    "groups": "List, describe and delete consumer groups, reset their offsets.",
    "produce": "Write lines as records.",
    "consume": "Print records.",
    "perf": "Measure how fast records are written and read.",
    "configs": "Show and change settings and quotas.",
    "records": "Delete the records before an offset.",
    "log-dirs": "Show how large topics are on the brokers' disks.",
    "transactions": "List, describe and abort transactions.",
    "sinks": "List, describe and delete the progress of exactly-once sinks.",
    "dump-log": "Show what the files of a log hold, without a broker.",
    "verify": "Check the files of a data directory, without a broker.",
    "completion": "Print the completion of this command for a shell.",
}


class LazyGroup(click.Group):
    """A group whose commands are modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"klog_broker.cli.{cmd_name.replace('-', '_')}")
        found: click.Command = module.command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The texts of COMMANDS: `klog --help` must not import the commands' modules."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands by the texts of COMMANDS, whose modules must not be imported for it; options."""
        commands = [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a KlogError is printed on stderr as its sentence."""
        try:
            return super().invoke(ctx)
        except KlogError as error:
            exit_with(error)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def command() -> None:
    """A Kafka-compatible log broker and its tools."""
