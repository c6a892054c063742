"""pytest fixtures: ``klog_broker`` (one for the session) and ``klog_topic`` (one for each test).

Where klog is installed, pytest loads this module in every session. Each fixture imports other
modules of klog in its body, so that only a session that uses the fixture loads them.
"""

import itertools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark_klog.testing.broker import Broker

_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """End the faults that a test has added to brokers, before its fixtures end."""
    faults = sys.modules.get("pyspark_klog.testing.faults")
    if faults is not None:
        faults.end_all_faults()


@pytest.fixture(scope="session")
def klog_broker() -> "Iterator[Broker]":
    """A running broker that creates topics with three partitions. Its address for clients is
    ``klog_broker.bootstrap_servers``."""
    from pyspark_klog.testing.broker import Broker

    with Broker(num_partitions=3) as broker:
        yield broker


@pytest.fixture
def klog_topic(klog_broker: "Broker") -> "Iterator[str]":
    """The name of a new topic with three partitions; it is deleted when the test ends."""
    from pyspark_klog.client.admin.topics import Admin, NewTopic

    name = f"topic-{next(_numbers)}"
    with Admin(klog_broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name)])
        yield name
        if name in admin.list_topics():
            admin.delete_topics([name])
