"""Prints the table of docs/differences-from-kafka.md, which lists fields of responses.

``python -m tests.support.oracle.docs`` writes it, ``--check`` compares.
"""

import sys

from tests.support.oracle.rows import ROWS
from tests.support.peers import ROOT

PAGE = ROOT / "docs" / "differences-from-kafka.md"
BEGIN = (
    "<!-- Printed by `./dev python -m tests.support.oracle.docs`;"
    " edit tests/support/oracle/rows.py. -->"
)
END = "<!-- End of the printed table. -->"


def table() -> str:
    """The rows as Markdown, between the two marks."""
    lines = [
        BEGIN,
        "",
        "| API | field | request | Kafka 3.9.1 | Kafka 4.3.1 | klog | reason |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        cells = (
            row.api or "all",
            f"`{row.field}`" if row.field else "any",
            row.request,
            row.oldest,
            row.newest,
            row.klog,
            row.reason,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", END])


def page() -> str:
    """The whole page with the present table."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + table() + after


def main() -> int:
    """Write the page, or check it."""
    wanted = page()
    if "--check" in sys.argv[1:]:
        is_same = PAGE.read_text(encoding="utf-8") == wanted
        state = "as declared" if is_same else "run this without --check"
        print(f"docs/differences-from-kafka.md: {state}")
        return 0 if is_same else 1
    PAGE.write_text(wanted, encoding="utf-8")
    print("wrote docs/differences-from-kafka.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
