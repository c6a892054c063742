"""The part of a plan about years: in some runs the wall clock is set a year off, now and then."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.plan import Plan
from tests.simulation.world import World

_SHARE = 0.15
"""The share of runs with years."""
_FOR_EVER = str((1 << 31) - 1)


def with_years(plan: Plan, world: World) -> Plan:
    """In some runs let the clock jump by years, and look for expired state all the time.

    Retention by time applies to fewer logs then: a jump would empty them.
    """
    if not world.chance(_SHARE):
        return plan
    settings = {
        "log.retention.ms": world.random.choice(("-1", "-1", "-1", "604800000")),
        # A producer stamps records with the machine's clock, and repeats them after a jump.
        "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
        "producer.id.expiration.check.interval.ms": str(world.between(300, 3_000)),
        "offsets.retention.check.interval.ms": str(world.between(300, 3_000)),
    }
    # Offsets that were committed without members expire by their own age.
    if plan.transactional or plan.has_admin or world.chance(0.2):
        settings["offsets.retention.minutes"] = _FOR_EVER
    return replace(plan, has_years=True, settings={**plan.settings, **settings})
