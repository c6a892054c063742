"""The arguments of `python -m pyspark_klog checkpoint`. Imports nothing heavy."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The class is private in argparse, and exists in its stubs only with a type argument.
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_CHECKPOINT = """Look into the checkpoint of a streaming query with format("klog") or
format("kafka"), and move its offsets while its state is kept. PATH is the query's
checkpointLocation: a local path, or a URI of a file system that Hadoop knows, which is read through
the active Spark session (without one, a session starts). In a notebook:
from pyspark_klog.__main__ import main; main(["checkpoint", "show", PATH])."""

_SHOW = """Show the query's last committed batch, its stateful operators, and the offset up to which
it has read each partition; with --bootstrap-servers also what the partitions have now."""

_CHECK = """Check that Spark can continue from the checkpoint; with --bootstrap-servers also that
the offsets still exist. Each check prints a line: ok, note, or FAIL with what to do. The exit code
is 1 after a FAIL."""

_MOVE = """Change the offsets at which the query continues. Stop the query first: nothing in a
checkpoint shows that a query is running. Shows the new offsets, and changes nothing without
--execute. Files that change are copied to PATH/_klog_backups first. Refuses a move that would make
a stateful operator wrong, and a move of a checkpoint with a batch that was not committed. A
partition that does not exist any more is removed from the checkpoint."""


def add_broker_options(parser: argparse.ArgumentParser, *, required: bool, use: str) -> None:
    """Add --bootstrap-servers, with the help text ``use``, and --command-config."""
    parser.add_argument(
        "--bootstrap-servers",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        required=required,
        help=use,
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        type=Path,
        help="a properties file with Kafka's client settings, for example for security",
    )


def add_checkpoint_commands(commands: "Commands") -> None:
    """Add the command `checkpoint` with its commands show, check and move."""
    checkpoint = commands.add_parser(
        "checkpoint",
        help="show, check and move the offsets of a query's checkpoint",
        description=_CHECKPOINT,
    )
    own = checkpoint.add_subparsers(dest="checkpoint_command", metavar="COMMAND", required=True)
    show = own.add_parser("show", help="show what the query has read", description=_SHOW)
    _add_common(show, required=False, use="also show the partitions' first offsets and ends")
    check = own.add_parser("check", help="check that it can continue", description=_CHECK)
    _add_common(check, required=False, use="also check that the offsets still exist")
    move = own.add_parser("move", help="change where it continues", description=_MOVE)
    _add_common(move, required=True, use="brokers to connect to first")
    _add_move_options(move)


def _add_common(parser: argparse.ArgumentParser, *, required: bool, use: str) -> None:
    parser.add_argument("path", metavar="PATH", help="the query's checkpointLocation")
    add_broker_options(parser, required=required, use=use)
    parser.add_argument(
        "--json", dest="as_json", action="store_true", help="print JSON for scripts"
    )


def _add_move_options(move: argparse.ArgumentParser) -> None:
    target = move.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to-earliest",
        action="store_true",
        help="to the first record; also for a topic that was deleted and created again",
    )
    target.add_argument("--to-latest", action="store_true", help="to the end")
    target.add_argument(
        "--to-datetime",
        metavar="TIME",
        help="to a time: 2026-01-31T23:59:59.000 (UTC, or a zone: +02:00)",
    )
    target.add_argument(
        "--by-duration", metavar="SPAN", help="to a time this long ago: P7D, PT1H30M"
    )
    target.add_argument(
        "--to-offsets",
        metavar="JSON",
        help='to given offsets, as in startingOffsets: \'{"orders":{"0":23,"1":-2}}\'',
    )
    move.add_argument(
        "--topic",
        dest="topics",
        action="append",
        default=[],
        metavar="TOPIC[:0,1]",
        help="only this topic, or some of its partitions; repeatable",
    )
    move.add_argument("--execute", action="store_true", help="change the checkpoint")
    move.add_argument("--dry-run", action="store_true", help="only show, as without --execute")
    move.add_argument(
        "--ignore-state",
        action="store_true",
        help="move although a stateful operator would get records twice, or miss some",
    )
    move.add_argument(
        "--empty-planned-batch",
        action="store_true",
        help="let a batch that was not committed run again without records of moved partitions",
    )
