"""What holds for every test: hypothesis without clocks, the mark of tests that need peers."""

import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.support.parity_report import (
    check_markers,
    only_with_parity,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)

__all__ = ["pytest_collection_modifyitems", "pytest_runtest_makereport", "pytest_sessionfinish"]

pytest.register_assert_rewrite(
    "tests.support.zookeeper_contract", "tests.support.zookeeper_requests_contract"
)

_PEERS = Path(__file__).parent / "peers"

# A deadline per example would be a timing assertion, and a busy machine is no failure.
# A failed example can be run again elsewhere by the blob that is printed with it.
settings.register_profile(
    "klog", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("klog")

# Hypothesis makes what failed smaller for up to 300 s before it tells of it: the tests' time-out,
# of which all that was found would be lost.
_PROPERTY_TIMEOUT_S = 900


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What lies in tests/peers needs Apache Kafka or Spark's connector (`./dev peers`); a property
    has the time to show the example that failed."""
    for item in items:
        if _PEERS in item.path.parents:
            item.add_marker(pytest.mark.peers)
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.timeout(_PROPERTY_TIMEOUT_S))
    check_markers(items)
    only_with_parity(config, items)


def pytest_collection_finish() -> None:
    """Python's collector need not look at all that was imported, again and again: it stays."""
    gc.collect()
    gc.freeze()
