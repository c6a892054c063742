"""What holds for every test: hypothesis without clocks, the mark of tests that need peers."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_PEERS = Path(__file__).parent / "peers"

# A deadline per example would be a timing assertion, and a busy machine is no failure.
settings.register_profile("klog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("klog")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What lies in tests/peers needs Apache Kafka or Spark's connector (`./dev peers`)."""
    for item in items:
        if _PEERS in item.path.parents:
            item.add_marker(pytest.mark.peers)
