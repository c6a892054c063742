"""Clusters of brokers with a bug: a check has to catch each of them, or the check is blind.

A mutant replaces one method of the real brokers. When their code moves, adapt it here.
"""

from tests.simulation.clusters.mutants import (
    controllers,
    coordination,
    disks,
    followers,
    leaders,
    topics,
)
from tests.simulation.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *leaders.MUTANTS,
    *followers.MUTANTS,
    *controllers.MUTANTS,
    *coordination.MUTANTS,
    *topics.MUTANTS,
    *disks.MUTANTS,
)
