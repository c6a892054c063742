"""The ports that servers of tests get."""

import socket
from pathlib import Path

import pytest

from pyspark_klog.testing import ports


def test_free_ports_differ_and_are_unused() -> None:
    found = ports.free_ports(50)
    assert len(set(found)) == 50
    for port in found:
        with socket.create_server((ports.HOST, port)):
            pass


def test_no_connection_is_given_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "ip_local_port_range"
    first.write_text("10008\t60999\n")
    monkeypatch.setattr(ports, "_OF_CONNECTIONS", first)
    assert set(ports.free_ports(4)) < set(range(10_000, 10_008))


def test_a_port_that_is_taken_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = ports.free_port()
    monkeypatch.setattr(ports, "_LOWEST", port)
    first = tmp_path / "ip_local_port_range"
    first.write_text(f"{port + 1} 60999")
    monkeypatch.setattr(ports, "_OF_CONNECTIONS", first)
    assert ports.free_port() == port
    with socket.create_server((ports.HOST, port)), pytest.raises(OSError, match="not 1"):
        ports.free_port()
