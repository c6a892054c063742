"""Bugs that only disks show: power cuts in the middle of a truncation, and disks that are full.

Most of the disk's own mutants are those of a single broker (tests/simulation/mutants/disk.py).
"""

from typing import Any

from klog_broker.controller import failed_replicas
from klog_broker.log.shortening import Shortener
from tests.simulation.mutants.disk import MUTANTS as OF_ONE_BROKER
from tests.simulation.mutants.mutant import Mutant


def _old_recovery_point(original: Any) -> Any:
    def finish(shortener: Any, error: Any, done: Any) -> None:
        """What the checkpoints say of the records that were cut counts for those in their place."""
        shortener._renew_checkpoints = lambda then: then()
        original(shortener, error, done)

    return finish


def _for_good(_original: Any) -> Any:
    def ask_again(_work: Any) -> Any:
        """Who had no room for a log never has any."""
        yield from ()

    return ask_again


_ALSO_OF_CLUSTERS = ("torn tail kept", "clean marker kept", "failed write acknowledged")

MUTANTS = (
    Mutant("recovery point kept over a cut", Shortener, "_finish", _old_recovery_point),
    Mutant("a full disk is one that has failed", failed_replicas, "ask_again", _for_good),
    *(each for each in OF_ONE_BROKER if each.name in _ALSO_OF_CLUSTERS),
)
