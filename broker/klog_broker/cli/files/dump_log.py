"""`klog dump-log`: prints the files of a log line by line, without a broker."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from klog_broker.cli.common.errors import CommandExit, report_unreadable
from klog_broker.inspection.dump import DumpOptions, Line, dump, files_to_dump
from klog_broker.inspection.lines import Finding, Level

_HELP = """Print the files of a log: batches, records, indexes, snapshots, checkpoints.

PATH is a file, or a partition's folder for all of its files. The lines are those of Kafka's
kafka-dump-log.sh. Records of __consumer_offsets and __transaction_state are decoded automatically.
The exit code is 1 if a file is damaged. See docs/looking-inside.md for more.
"""


@click.command("dump-log", help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--files", metavar="PATH,...", help="Further paths, comma-separated.")
@click.option("--print-data-log", is_flag=True, help="Print records with keys and values.")
@click.option("--deep-iteration", is_flag=True, help="Print records without keys and values.")
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option(
    "--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state."
)
@click.option("--index-sanity-check", is_flag=True, help="Print only whether indexes are sound.")
@click.option("--verify-index-only", is_flag=True, help="Print only the faults of indexes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for scripts.")
def command(
    paths: tuple[Path, ...],
    files: str | None,
    print_data_log: bool,
    deep_iteration: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    index_sanity_check: bool,
    verify_index_only: bool,
    as_json: bool,
) -> None:
    """Run `klog dump-log`; the help text is _HELP."""
    wanted = [*paths, *(Path(name) for name in (files or "").split(",") if name)]
    if not wanted:
        raise click.UsageError("no PATH: expected files of a log, or a partition's folder")
    if offsets_decoder and transaction_log_decoder:
        raise click.UsageError("--offsets-decoder and --transaction-log-decoder: expected one")
    options = DumpOptions(
        print_data_log,
        deep_iteration,
        offsets_decoder,
        transaction_log_decoder,
        index_sanity_check,
        verify_index_only,
    )
    is_damaged = is_unreadable = False
    for path in wanted:
        try:
            is_damaged |= _print(dump(list(files_to_dump([path])), options), as_json)
        except OSError as error:
            report_unreadable(error)
            is_unreadable = True
    if is_unreadable:
        sys.exit(CommandExit.USAGE)
    sys.exit(CommandExit.FAILED if is_damaged else CommandExit.OK)


def _print(lines: Iterable[Line], as_json: bool) -> bool:
    """Print the lines of a dump. Return whether any of them is a finding (a fault in a file, or a
    remark about it) of level ERROR."""
    is_damaged = False
    out = sys.stdout
    for path, what in lines:
        is_damaged |= isinstance(what, Finding) and what.level is Level.ERROR
        if as_json:
            kind = "finding" if isinstance(what, Finding) else what.kind
            fields = {"kind": kind, "file": str(path), **what.fields}
            out.write(json.dumps(fields) + "\n")
        else:
            out.write((what.line if isinstance(what, Finding) else what.text) + "\n")
    return is_damaged
