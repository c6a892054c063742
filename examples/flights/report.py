"""The result as a table and as a chart."""

from pathlib import Path
from typing import Any

Row = dict[str, Any]


def table(rows: list[Row]) -> str:
    """Mean departure delay in minutes, hours down, origins across, with the number of flights."""
    origins = sorted({row["origin"] for row in rows})
    by_place = {(row["hour"], row["origin"]): row for row in rows}
    head = "hour" + "".join(f"{origin:>24}" for origin in origins)
    unit = "    " + "".join(f"{'flights':>11}{'mean delay':>13}" for _ in origins)
    lines = [head, unit]
    for hour in sorted({row["hour"] for row in rows}):
        cells = "".join(_cell(by_place.get((hour, origin))) for origin in origins)
        lines.append(f"{hour:>4}{cells}")
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return f"{'-':>11}{'-':>13}"
    mean = f"{_mean(row):.1f} min" if row["departed"] else "none left"
    return f"{row['flights']:>11,}{mean:>13}"


def _mean(row: Row) -> float:
    return float(row["delay_sum"]) / float(row["departed"])


def plot(rows: list[Row], path: Path) -> None:
    """Draw the mean delays by hour, one line for each origin."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    for origin in sorted({row["origin"] for row in rows}):
        own = sorted(
            (row["hour"], _mean(row)) for row in rows if row["origin"] == origin and row["departed"]
        )
        axes.plot([hour for hour, _ in own], [mean for _, mean in own], marker="o", label=origin)
    axes.set_title("Departures from New York, 2013: mean delay by scheduled hour")
    axes.set_xlabel("hour of the day")
    axes.set_xticks(sorted({row["hour"] for row in rows if row["departed"]}))
    axes.set_ylabel("minutes")
    axes.grid(alpha=0.3)
    axes.legend(title="origin")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
