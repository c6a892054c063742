"""The probes of metrics.listener while a broker's process starts, and once it serves."""

import json
import re
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

from pyspark_klog import testing

_PORT = re.compile(r"serving metrics host=127\.0\.0\.1 port=(\d+)")


def get(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_a_starting_broker_answers_that_it_is_not_ready(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent_zookeeper:
        command = [sys.executable, "-P", "-m", "klog_broker", "--port", "0"]
        command += ["--data", str(tmp_path / "data"), "--until-stdin-ends"]
        command += ["--set", f"zookeeper.connect=127.0.0.1:{silent_zookeeper.getsockname()[1]}"]
        command += ["--set", "broker.id=1", "--set", "metrics.listener=127.0.0.1:0"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as starting:
            assert starting.stderr is not None
            lines = iter(starting.stderr)
            port = next(int(found[1]) for line in lines if (found := _PORT.search(line)))
            assert get(port, "/ready") == (503, '{"state": "starting"}\n')
            assert get(port, "/health") == (200, '{"state": "starting"}\n')
            assert get(port, "/metrics")[0] == 503
            assert get(port, "/other")[0] == 404
            starting.terminate()
            starting.communicate(timeout=60)


def test_the_port_of_the_probes_stays_when_the_broker_serves() -> None:
    with testing.Broker(metrics_listener="127.0.0.1:0") as broker:
        (port,) = map(int, _PORT.findall(broker.output()))
        status, body = get(port, "/ready")
        assert (status, json.loads(body)["state"]) == (200, "ready")
        assert get(port, "/metrics")[0] == 200
