"""The command line: `python -m pyspark_klog` prints the usage, `python -m pyspark_klog check`
checks the Pythons with their packages, the Java and the brokers that a Spark job would use, and
`python -m pyspark_klog checkpoint` shows, checks and moves the offsets of a query's checkpoint."""

import argparse
import os
import sys
from collections.abc import Sequence

from pyspark_klog._version import __version__
from pyspark_klog.checkpoint.arguments import add_broker_options, add_checkpoint_commands
from pyspark_klog.closed_pipe import quiet_on_closed_pipe

_CHECK = """Check what a job with format("klog") needs, without starting Spark: the Pythons of the
driver (the one that runs this) and of Spark's workers, klog, Spark, pyarrow, numba and Java here,
and brokers if they are named. Each check prints a line: ok, note, or FAIL with what was expected
and what to do. The exit code is 1 after a FAIL. On a cluster run it on each kind of host."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_klog",
        description="Spark's source and sink for Kafka's protocol. Docs: docs/ of its repository.",
        epilog="python -m pyspark_klog.warm compiles the kernels ahead of their first use.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    check = commands.add_parser(
        "check", help="check what a job needs before it starts", description=_CHECK
    )
    add_broker_options(check, required=False, use="also check that these brokers can be reached")
    add_checkpoint_commands(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; print the usage if they name none."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    if given.command == "checkpoint":
        from pyspark_klog.checkpoint.command import run_checkpoint_command

        return run_checkpoint_command(given)
    from pyspark_klog.check.command import check

    return check(os.environ, given.bootstrap_servers, given.command_config)


if __name__ == "__main__":
    with quiet_on_closed_pipe():
        sys.exit(main())
