"""The chart of `latency`: quantiles of both brokers, a panel for each rate."""

from collections.abc import Mapping, Sequence
from pathlib import Path

Curves = dict[str, Mapping[str, Sequence[float]]]
"""The latencies of each panel, by its title, and of each broker, in ms.

Place n of a list is the quantile 1 - 10 ** -(n / 10).
"""

_STEPS_A_DECADE = 10
_TICKS = {"50": 0.301, "90": 1.0, "99": 2.0, "99.9": 3.0, "99.99": 4.0}


def draw(curves: Curves, path: Path) -> None:
    """Write the chart; the path's suffix chooses the file format."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        1, len(curves), figsize=(3.4 * len(curves), 3.4), sharey=True, squeeze=False
    )
    for axes, (title, brokers) in zip(panels[0], curves.items(), strict=True):
        for broker, quantiles in brokers.items():
            decades = [place / _STEPS_A_DECADE for place in range(len(quantiles))]
            axes.plot(decades, quantiles, label=broker)
        axes.set_title(title, fontsize=10)
        axes.set_xticks(list(_TICKS.values()), list(_TICKS))
        axes.set_xlabel("percentile")
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("ms from due to received")
    panels[0][0].legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)
