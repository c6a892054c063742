"""Needs of a Spark cluster: classes that pickle by name, light imports, errors without packages."""

import importlib.util
import pickle
import pickletools
import sys

import pytest
from pyspark import cloudpickle

import pyspark_klog
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.spark.errors import PackageMissing
from pyspark_klog.spark.workers import clients
from pyspark_klog.spark.workers.clients import check_arrow, check_numba


@pytest.mark.parity("cluster: pickles by reference")
def test_the_source_travels_as_a_name() -> None:
    sent = cloudpickle.dumps(pyspark_klog.DefaultSource)
    assert len(sent) < 200
    names = [text for _, text, _ in pickletools.genops(sent) if isinstance(text, str)]
    assert any(name.startswith("pyspark_klog") for name in names)
    assert pickle.loads(sent) is pyspark_klog.DefaultSource


@pytest.mark.parity("cluster: without numba", "own option: allowSlow")
def test_without_numba_it_runs_only_with_allow_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide(monkeypatch, "numba")
    with pytest.raises(PackageMissing, match="numba is not installed") as caught:
        check_numba(allow_slow=False)
    text = str(caught.value)
    assert sys.executable in text
    assert "install it on every executor" in text
    assert "allowSlow=true" in text
    check_numba(allow_slow=True)


def test_without_pyarrow_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    check_arrow()
    _hide(monkeypatch, "pyarrow")
    with pytest.raises(PackageMissing, match=r"pyarrow is not .*PYSPARK_PYTHON") as caught:
        pyspark_klog.DefaultSource({})
    assert sys.executable in str(caught.value)


def test_a_worker_keeps_the_clients_that_were_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that differ from query to query must not cost a descriptor each for ever."""
    monkeypatch.setattr(clients, "_clients", {})
    monkeypatch.setattr(clients, "_producers", {})
    closed: list[str] = []
    close = BlockingClient.close

    def note_and_close(client: BlockingClient) -> None:
        closed.append(client.settings.text("client.id"))
        close(client)

    monkeypatch.setattr(BlockingClient, "close", note_and_close)

    def settings(number: int) -> ClientSettings:
        return ClientSettings({"bootstrap.servers": "nowhere:1", "client.id": f"job-{number}"})

    first = clients.client_for(settings(0))
    producer = clients.producer_for(settings(1))
    for number in range(2, 9):
        clients.client_for(settings(number))
        assert clients.client_for(settings(0)) is first
        assert clients.producer_for(settings(1)) is producer
    assert closed == ["job-2"]
    for number in range(2, 20):
        clients.client_for(settings(number))
    assert {"job-0", "job-1"} < set(closed)
    assert len(clients._clients) == 8
    assert not clients._producers
    for client in clients._clients.values():
        client.close()


def _hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *p: None if name == package else find_spec(name, *p),
    )
