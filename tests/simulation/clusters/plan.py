"""What a seed chooses of a cluster before anything happens."""

from dataclasses import dataclass

from tests.simulation.plan import Plan
from tests.simulation.world import World

_CHAOS_MS = (10_000, 25_000)
_SESSIONS_MS = (2_000, 4_000, 6_000)


@dataclass(frozen=True)
class ClusterPlan(Plan):
    """One run of so many brokers."""

    brokers: int = 3


def make_cluster_plan(world: World) -> ClusterPlan:
    """Of everything a little."""
    chance, between, random = world.chance, world.between, world.random
    settings = {
        "auto.create.topics.enable": "false",
        "zookeeper.session.timeout.ms": str(random.choice(_SESSIONS_MS)),
        "log.index.size.max.bytes": "1200",
        "log.dirs": "/data",
    }
    return ClusterPlan(
        chaos_ms=between(*_CHAOS_MS),
        topics=(),
        flushes_all=False,
        with_kernel=chance(0.5),
        has_socket_calls=chance(0.5),
        has_cold_pages=False,
        disk_slowness=random.choice((1, 1, 8)),
        idempotent_producers=0,
        plain_producers=0,
        consumers=0,
        members=0,
        has_admin=False,
        has_large_records=False,
        transactional=(),
        members_in_transactions=False,
        has_power_cuts=chance(0.5),
        settings=settings,
    )
