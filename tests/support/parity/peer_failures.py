"""Reasons for which Spark's own connector fails in each scenario in which klog fails, too.

tests/golden/peer_failures.json holds, by test and in the order of its failures, the class of the
innermost cause on the JVM; for classes that say little, also the beginning of the text, with
numbers and names made up by the test replaced.
`KLOG_WRITE_PEER_FAILURES=1 ./dev peers parity` writes the peer's present failures there. Before
you commit that file, check line by line that klog's failure has the same reason.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[2] / "golden" / "peer_failures.json"
WRITE_VARIABLE = "KLOG_WRITE_PEER_FAILURES"
_SHOWN_CHARACTERS = 100
# Classes that name the failure; their texts depend on the client's state at that moment.
_TELLING = (
    "org.apache.kafka.common.errors.",
    "org.apache.kafka.clients.",
    "java.security.",
    "sun.",
)


def innermost_cause(error: Exception) -> tuple[str, str]:
    """Class and text of the JVM's innermost cause."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        return type(error).__name__, str(error)
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getClass().getName()), str(cause.getMessage() or "")


def reason(class_name: str, text: str) -> str:
    """Return the stored form of a failure."""
    if class_name.startswith(_TELLING):
        return class_name
    line = " ".join(text.split())
    line = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[\w.-]*\d[\w.-]*\b", "#", line)
    return f"{class_name}: {line[:_SHOWN_CHARACTERS]}".rstrip(": ")


class PeerFailures:
    """Expected failures of the peer in one test, in order."""

    def __init__(self, test: str) -> None:
        self._test = test
        self._seen = 0

    def check(self, error: Exception) -> None:
        """The peer failed: for the reason that is expected?"""
        found = reason(*innermost_cause(error))
        kept: dict[str, list[str]] = json.loads(KEPT.read_text(encoding="utf-8"))
        expected = kept.get(self._test, [])
        number, self._seen = self._seen, self._seen + 1
        if os.environ.get(WRITE_VARIABLE):
            kept[self._test] = [*expected[:number], found, *expected[number + 1 :]]
            text = json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False)
            KEPT.write_text(text + "\n", encoding="utf-8")
            return
        wanted = expected[number] if number < len(expected) else "nothing is written down"
        if found != wanted:
            raise AssertionError(
                f"the peer failed with {found!r}; tests/golden/{KEPT.name} says: {wanted!r}"
            )
