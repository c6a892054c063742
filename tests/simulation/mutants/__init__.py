"""Brokers with a bug: each has to be caught by a check of the simulation, or the check is blind.

A mutant replaces one method of the live broker. Where the broker's code moves, mend it here.
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
