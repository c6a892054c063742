"""Each panel of the dashboard shows values of a real cluster, by a real Prometheus."""

from pathlib import Path

from tests.support.alerts.dashboard_chart import draw, load_cluster


def test_each_panel_has_values_of_a_cluster(tmp_path: Path) -> None:
    panels = load_cluster(tmp_path, load_s=40)
    without = [each.title for each in panels if each.place["h"] > 1 and not each.lines]
    assert without == []
    draw(panels, tmp_path / "dashboard.png")
    assert (tmp_path / "dashboard.png").read_bytes().startswith(b"\x89PNG")
