"""Runs Kafka's own DumpLogSegments over klog's files; a complaint of the tool fails a test."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.support.peers import KAFKA_4_4, NEWEST_KAFKA, OLDEST_KAFKA, run_tool

MAIN_CLASSES = {
    OLDEST_KAFKA: "kafka.tools.DumpLogSegments",
    NEWEST_KAFKA: "org.apache.kafka.tools.DumpLogSegments",
    KAFKA_4_4: "org.apache.kafka.tools.DumpLogSegments",
}
# Words in the tool's output that report a fault, in either release.
COMPLAINT = re.compile(r"mismatch|found |error|corrupt|exception|invalid|out of order", re.I)
_LOGGER_LINES = ("SLF4J:", "log4j:")


def dump(version: str, files: Sequence[Path], *options: str) -> str:
    """Return the tool's output for the files; the tool must exit with 0 and report no fault."""
    arguments = ["--files", ",".join(map(str, files)), *options]
    result = run_tool(version, MAIN_CLASSES[version], arguments)
    output = result.stdout
    assert result.returncode == 0, output + result.stderr
    # The loggers of the jars talk about themselves; `isvalid` is a word of the tool's.
    errors = [line for line in result.stderr.splitlines() if not line.startswith(_LOGGER_LINES)]
    said = output.replace("isvalid", "") + "\n".join(errors)
    complaint = COMPLAINT.search(said)
    assert complaint is None, said[max(complaint.start() - 500, 0) :][:1_500]
    return output
