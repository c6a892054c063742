"""`klog verify`: checks whether the files of a data directory are consistent, without a broker."""

import json
import sys
from pathlib import Path

import click

from klog_broker.cli.common.errors import CommandExit, exit_unreadable, exit_unusable
from klog_broker.inspection.directory_checks import NothingToVerify, verify
from klog_broker.inspection.lines import Finding, Level
from klog_broker.inspection.report import Report

_HELP = """Check the files of a data directory, or of one partition's folder.

Compares batches (CRC, records, offsets), indexes, transactions, producer snapshots, leader epochs
and checkpoints with each other, and changes nothing. Traces of a crash that the next start repairs
are `recoverable`. The exit code is 1 if a file is damaged. See docs/looking-inside.md for more.
"""


@click.command("verify", help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for scripts.")
def command(directory: Path, as_json: bool) -> None:
    """Run `klog verify`; the help text is _HELP."""

    def say(finding: Finding) -> None:
        if as_json:
            line = json.dumps({"kind": "finding", **finding.fields})
        else:
            line = finding.line
        sys.stdout.write(line + "\n")

    report = Report(say)
    try:
        verify(directory, report)
    except OSError as error:
        exit_unreadable(error)
    except NothingToVerify as error:
        exit_unusable(error)
    sys.stdout.write((json.dumps(_summary(report)) if as_json else _sentence(report)) + "\n")
    sys.exit(CommandExit.OK if report.is_sound else CommandExit.FAILED)


def _summary(report: Report) -> dict[str, object]:
    return {
        "kind": "summary",
        "sound": report.is_sound,
        "errors": report.findings[Level.ERROR],
        "recoverable": report.findings[Level.RECOVERABLE],
        "notes": report.findings[Level.NOTE],
        "partitions": report.partitions,
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "bytes": report.bytes,
    }


def _sentence(report: Report) -> str:
    found = report.findings
    seen = (
        f"{report.partitions} partitions, {report.segments} segments, {report.batches} batches, "
        f"{report.records} records, {report.bytes} bytes"
    )
    verdict = "sound" if report.is_sound else f"{found[Level.ERROR]} errors"
    others = f"{found[Level.RECOVERABLE]} recoverable, {found[Level.NOTE]} notes"
    return f"{verdict}: {seen}; {others}"
