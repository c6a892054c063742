"""The plan of a cluster's run, drawn from the seed."""

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.plan import Plan, TopicPlan
from tests.simulation.world import World

_CHAOS_MS = (8_000, 16_000)
_SESSIONS_MS = (2_000, 2_000, 4_000)


@dataclass(frozen=True)
class ReplicatedTopic(TopicPlan):
    """A topic with a replication factor."""

    replicas: int = 3


@dataclass(frozen=True)
class ClusterPlan(Plan):
    """The plan of a run with several brokers."""

    brokers: int = 3

    def min_in_sync(self, topic: str) -> int:
        """min.insync.replicas of the topic."""
        (found,) = [each for each in self.topics if each.name == topic]
        return int(found.configs["min.insync.replicas"])


def make_cluster_plan(world: World) -> ClusterPlan:
    """Draw a plan: which topics, clients, settings and faults the run has."""
    chance, between, random = world.chance, world.between, world.random
    flushes_all = chance(0.4)
    topics = []
    for number in range(between(1, 2)):
        replicas = random.choice((1, 3, 3, 3))
        configs = {"min.insync.replicas": str(min(replicas, between(1, 2)))}
        if flushes_all:
            configs["flush.messages"] = "1"
        if chance(0.4):
            configs["segment.bytes"] = str(between(1_500, 6_000))
        topics.append(
            ReplicatedTopic(
                f"t{number}", between(1, 2), flushes_all, configs=configs, replicas=replicas
            )
        )
    settings = {
        "auto.create.topics.enable": "false",
        "zookeeper.session.timeout.ms": str(random.choice(_SESSIONS_MS)),
        "replica.lag.time.max.ms": str(between(1_000, 4_000)),
        "replica.fetch.wait.max.ms": str(between(100, 500)),
        "controlled.shutdown.retry.backoff.ms": "500",
        "log.index.size.max.bytes": "1200",
        "log.dirs": "/data",
        "replica.high.watermark.checkpoint.interval.ms": "2000",
    }
    return ClusterPlan(
        chaos_ms=between(*_CHAOS_MS),
        topics=tuple(topics),
        flushes_all=flushes_all,
        with_kernel=chance(0.5),
        has_socket_calls=chance(0.5),
        has_cold_pages=False,
        disk_slowness=random.choice((1, 1, 8)),
        idempotent_producers=between(1, 2),
        plain_producers=between(0, 1),
        consumers=between(0, 2),
        members=0,
        has_admin=chance(0.4),
        has_large_records=False,
        transactional=(),
        members_in_transactions=False,
        has_power_cuts=flushes_all and chance(0.7),
        settings=settings,
    )


def with_power_cuts(plan: ClusterPlan, seed: int) -> ClusterPlan:
    """Add power cuts to some runs that do not flush before they acknowledge.

    These runs may lose records that no broker has flushed. Runs with transactions get none, because
    nothing would be promised of transactions then. The choice has a random generator of its own, as
    in `with_coordination`.
    """
    random = Random(f"power of {seed}")
    settings = {
        **plan.settings,
        "log.flush.offset.checkpoint.interval.ms": str(random.randint(500, 8_000)),
    }
    if plan.flushes_all or plan.transactional or random.random() >= 0.35:
        return replace(plan, settings=settings)
    flushed_now_and_then = random.random() < 0.3
    topics = tuple(
        replace(each, configs={**each.configs, "flush.ms": str(random.randint(100, 2_000))})
        for each in plan.topics
    )
    return replace(
        plan,
        has_power_cuts=True,
        settings=settings,
        topics=topics if flushed_now_and_then else plan.topics,
    )
