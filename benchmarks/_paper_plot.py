"""The chart of `paper`: messages a second of each broker and client, a panel for each work."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks._brokers import KLOG
from benchmarks._paper_report import GOALS, PAPER_FIGURES, serves_as
from benchmarks._paper_runs import SHORT_BELOW, SHORT_S, Figure, share_of_full_size

_INK = "#1f77b4"
_GREY = "#8c8c8c"


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Write the chart; the path's suffix chooses the file format."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    known = [*figures, *PAPER_FIGURES]
    panels = {work: [each for each in known if serves_as(each, work)] for work in GOALS}
    heights = [len(panel) for panel in panels.values()]
    figure, rows = plt.subplots(
        len(panels),
        1,
        figsize=(9, 1.5 + 0.3 * sum(heights)),
        sharex=True,
        gridspec_kw={"height_ratios": heights},
        squeeze=False,
    )
    for axes, (work, panel) in zip(rows[:, 0], panels.items(), strict=True):
        shown = panel[::-1]  # the first one on top
        bars = axes.barh(
            [_label(each, work) for each in shown],
            [each.per_second for each in shown],
            color=[_INK if each.subject.broker == KLOG else _GREY for each in shown],
            hatch=["///" if each.is_short else "" for each in shown],
            edgecolor="white",
        )
        axes.bar_label(bars, [f" {each.per_second:,.0f}" for each in shown], fontsize=8)
        axes.set_title(work, fontsize=10, loc="left")
        axes.set_xscale("log")
        axes.set_xlim(1_000, 60_000_000)
        axes.tick_params(labelsize=8)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    rows[-1, 0].set_xlabel("messages a second, of 200 bytes")
    seconds = SHORT_S * share_of_full_size()
    short = f"ran for {seconds:g} s, because it is below {SHORT_BELOW:,} messages a second"
    hatched = Patch(facecolor=_GREY, hatch="///", edgecolor="white", label=short)
    figure.legend(handles=[hatched], loc="lower left", fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    # In SVG the same figures make the same file, with text as text.
    with mpl.rc_context({"svg.hashsalt": "klog", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _label(figure: Figure, work: str) -> str:
    subject = figure.subject
    acks = "" if subject.acks is None else f", acks={subject.acks}"
    other = "" if subject.work == work else f" ({subject.work})"
    return f"{subject.broker}, {subject.client}{acks}{other}"
