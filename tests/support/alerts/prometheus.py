"""A Prometheus server on loopback that scrapes brokers of a test."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from pyspark_klog.testing.ports import free_port
from tests.support.alerts.promtool import find_prometheus
from tests.support.eventually import eventually

SCRAPE_INTERVAL_S = 2
Series = tuple[dict[str, str], list[tuple[float, float]]]
"""The labels of a time series, and its points: Unix time in seconds, and value."""


class Prometheus:
    """Prometheus with its data in ``folder`` and one scrape job, klog; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._url = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        config = {
            "global": {"scrape_interval": f"{SCRAPE_INTERVAL_S}s"},
            "scrape_configs": [
                {
                    "job_name": "klog",
                    "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
                }
            ],
        }
        # A JSON document is also a YAML document.
        (self._folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        self.scrape({})
        command = [find_prometheus(), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"--web.listen-address={self._url}"],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._is_ready, 60, "Prometheus being ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def scrape(self, ports: Mapping[str, int]) -> None:
        """Scrape these ports of 127.0.0.1 from now on, by the name of the instance."""
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}}
            for name, port in ports.items()
        ]
        written = self._folder / "targets.new"
        written.write_text(json.dumps(targets), encoding="utf-8")
        written.replace(self._folder / "targets.json")

    def query_range(self, expression: str, start_s: float, end_s: float) -> list[Series]:
        """Return the values of a PromQL expression at each SCRAPE_INTERVAL_S."""
        query = {"query": expression, "start": start_s, "end": end_s, "step": SCRAPE_INTERVAL_S}
        with urlopen(f"http://{self._url}/api/v1/query_range?{urlencode(query)}") as response:
            found = json.load(response)["data"]["result"]
        return [
            (each["metric"], [(time, float(value)) for time, value in each["values"]])
            for each in found
        ]

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
        try:
            with urlopen(f"http://{self._url}/-/ready") as response:
                return bool(response.status == 200)
        except URLError:
            return False
