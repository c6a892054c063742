"""Unusable data in ZooKeeper are reported once, and cost no memory."""

import logging
import sys

import pytest

from klog_broker.metadata.zookeeper.bad_znodes import MAX_NAMED, BadZnodes


def test_a_znode_is_named_once_as_long_as_it_is_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    bad = BadZnodes(logging.getLogger("klog.test"))
    for data in (b"a", b"a", b"b", b"b", b"a"):
        bad.name("/config/topics/t", data, "it is no JSON")
    bad.name("/config/topics/u", b"a", "it is no JSON")
    assert len(caplog.messages) == 4
    assert caplog.messages[0] == (
        "znode=/config/topics/t is ignored, and stays unchanged: it is no JSON"
    )


def test_neither_data_nor_all_names_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    bad = BadZnodes(logging.getLogger("klog.test"))
    data = bytes(1_000_000)
    before = sys.getrefcount(data)
    bad.name("/first", data, "")
    assert sys.getrefcount(data) == before
    for number in range(MAX_NAMED - 1):
        bad.name(f"/{number}", b"", "")
    bad.name("/0", b"", "")
    bad.name("/first", data, "")
    assert len(caplog.messages) == MAX_NAMED
    for number in range(MAX_NAMED):
        bad.name(f"/more/{number}", b"", "")
    caplog.clear()
    bad.name("/first", data, "")
    assert len(caplog.messages) == 1
