"""What a seed chooses of years: in some runs the wall's clock is a year off, now and then."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.plan import Plan
from tests.simulation.world import World

_SHARE = 0.15
"""Of all runs."""
_FOR_EVER = str((1 << 31) - 1)


def with_years(plan: Plan, world: World) -> Plan:
    """Where the clock jumps by years, time limits logs less often: all that they held would go.
    What expires is looked for all the time."""
    if not world.chance(_SHARE):
        return plan
    settings = {
        "log.retention.ms": world.random.choice(("-1", "-1", "-1", "604800000")),
        # Producers live by the same clock, and repeat what they sent before it jumped.
        "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
        "producer.id.expiration.check.interval.ms": str(world.between(300, 3_000)),
        "offsets.retention.check.interval.ms": str(world.between(300, 3_000)),
    }
    # Positions that were committed without members expire by their own age.
    if plan.transactional or plan.has_admin or world.chance(0.2):
        settings["offsets.retention.minutes"] = _FOR_EVER
    return replace(plan, has_years=True, settings={**plan.settings, **settings})
