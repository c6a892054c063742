"""Brokers with a bug: a check of the simulation has to catch each of them, or the check is blind.

A mutant replaces one method of the real broker. When the broker's code moves, adapt it here.
"""

from tests.simulation.mutants import cleaning, clock, disk, groups, serving, transactions
from tests.simulation.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *serving.MUTANTS,
    *disk.MUTANTS,
    *cleaning.MUTANTS,
    *clock.MUTANTS,
    *groups.MUTANTS,
    *transactions.MUTANTS,
)
