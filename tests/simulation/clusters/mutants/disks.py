"""Bugs that only disks show: power cuts, and full disks.

Most mutants of the disk are those of a single broker (tests/simulation/mutants/disk.py).
"""

from typing import Any

from klog_broker.controller.zookeeper import failed_replicas
from tests.simulation.mutants.disk import MUTANTS as OF_ONE_BROKER
from tests.simulation.mutants.mutant import Mutant


def _for_good(_original: Any) -> Any:
    def ask_again(_work: Any) -> Any:
        """A broker whose disk was full when it was to create a log is never asked again."""
        yield from ()

    return ask_again


_ALSO_OF_CLUSTERS = ("torn tail kept", "failed write acknowledged")

MUTANTS = (
    Mutant("a full disk is one that has failed", failed_replicas, "send_roles_again", _for_good),
    *(each for each in OF_ONE_BROKER if each.name in _ALSO_OF_CLUSTERS),
)
