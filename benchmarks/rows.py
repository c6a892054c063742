"""The results of a benchmark: rows of klog's figure, its peer's, and the bar for their ratio."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of a benchmark.

    ``klog`` and ``peer`` are in ``unit``; without a peer (None) klog's figure stands alone. ``bar``
    is the least value of ``ratio``, or, with ``lower_is_better``, the greatest value of klog's
    figure (or, with a peer, of the ratio). With ``bar_is_absolute`` it applies to klog's figure
    even with a peer. ``note`` describes the measurement, for example the load generator's own
    share of a core.
    """

    work: str
    unit: str
    klog: float
    peer: float | None = None
    bar: float | None = None
    lower_is_better: bool = False
    note: str = ""
    bar_is_absolute: bool = False

    @property
    def ratio(self) -> float | None:
        """klog's figure over the peer's; None without a peer, or if the peer's is zero."""
        return self.klog / self.peer if self.peer else None

    @property
    def reached(self) -> bool | None:
        """Whether the bar is reached; None without a bar."""
        figure = self.klog if self.peer is None or self.bar_is_absolute else self.ratio
        if self.bar is None or figure is None:
            return None
        return figure <= self.bar if self.lower_is_better else figure >= self.bar


def table(title: str, rows: Sequence[Row]) -> str:
    """Rows as aligned text."""
    head = ("work", "unit", "klog", "peer", "ratio", "bar", "", "note")
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return f"\n{title}\n{text}"


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {True: "reached", False: "missed", None: ""}[row.reached]
    sign = "<=" if row.lower_is_better else ">="
    unit_of_bar = "" if row.peer is None or row.bar_is_absolute else "x"
    return (
        row.work,
        row.unit,
        _figure(row.klog),
        "" if row.peer is None else _figure(row.peer),
        "" if row.ratio is None else f"{row.ratio:.2f}x",
        "" if row.bar is None else f"{sign} {row.bar:g}{unit_of_bar}",
        verdict,
        row.note,
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
