"""Settings of all tests: hypothesis without deadlines, the mark of tests that need peers."""

import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.support.parity.report import (
    check_markers,
    only_with_parity,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)

__all__ = ["pytest_collection_modifyitems", "pytest_runtest_makereport", "pytest_sessionfinish"]

pytest.register_assert_rewrite(
    "tests.support.zookeeper.contract", "tests.support.zookeeper.requests_contract"
)

_PEERS = Path(__file__).parent / "peers"

# A deadline per example would be a timing assertion, and a busy machine is no failure.
# The blob that is printed with a failed example reproduces it elsewhere.
settings.register_profile(
    "klog", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("klog")

# Hypothesis shrinks a failed example for up to 300 s before it reports it: without a longer
# time-out, the test would end first, and the example would be lost.
_PROPERTY_TIMEOUT_S = 900


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of tests/peers, which need Apache Kafka or Spark's connector (`./dev peers`);
    give a property the time to report the example that failed."""
    for item in items:
        if _PEERS in item.path.parents:
            item.add_marker(pytest.mark.peers)
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.timeout(_PROPERTY_TIMEOUT_S))
    check_markers(items)
    only_with_parity(config, items)


def pytest_collection_finish() -> None:
    """Freeze all imported objects, so that Python's collector does not scan them repeatedly."""
    gc.collect()
    gc.freeze()
