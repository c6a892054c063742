"""Clusters of brokers with a bug: each has to be caught, or a check is blind.

A mutant replaces one method of the live brokers. Where their code moves, mend it here.
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
