"""The part of a plan about compaction: which topics are compacted, how often logs are cleaned."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.plan import Plan, TopicPlan
from tests.simulation.world import World

_SMALLEST_MAP_BYTES = (1 << 20) + 1
_A_DAY_MS = 86_400_000
_OF_FEW_KEYS = "0.0002"
"""With this load factor the smallest map takes 8 keys: rounds end early."""
_SHARE = 0.25
"""The share of runs with compaction."""


def with_compaction(plan: Plan, world: World) -> Plan:
    """In some runs compact topics, and let the broker's own topics be cleaned during the run."""
    if not world.chance(_SHARE):
        return plan
    always = world.between(0, len(plan.topics) - 1)
    topics = tuple(
        _compacted(topic, world) if number == always or world.chance(0.5) else topic
        for number, topic in enumerate(plan.topics)
    )
    return replace(
        plan,
        topics=topics,
        cleans=True,
        keeps_names_in_order=_deletes(topics) or world.chance(0.2),
        settings={**plan.settings, **_settings(world)},
    )


def _deletes(topics: tuple[TopicPlan, ...]) -> bool:
    """Whether retention deletes segments.

    Retention deletes the oldest segments first after a power cut only if names keep their order.
    """
    return any("retention" in name for topic in topics for name in topic.configs)


def _compacted(topic: TopicPlan, world: World) -> TopicPlan:
    chance, between = world.chance, world.between
    configs = {
        name: value
        for name, value in topic.configs.items()
        if not name.startswith("retention.") and name != "max.message.bytes"
    }
    configs["segment.bytes"] = str(between(1_000, 3_000))
    configs["cleanup.policy"] = "compact"
    configs["min.cleanable.dirty.ratio"] = world.random.choice(("0", "0.01", "0.4"))
    configs["delete.retention.ms"] = _delete_retention_ms(world)
    if chance(0.25):
        configs["cleanup.policy"] = "compact,delete"
        configs["retention.ms"] = str(between(4_000, 20_000))
        if chance(0.4):
            configs["retention.bytes"] = str(between(2_000, 30_000))
    if chance(0.15):
        configs["min.compaction.lag.ms"] = str(between(200, 4_000))
    if chance(0.15):
        # max.compaction.lag.ms must be larger than min.compaction.lag.ms.
        configs["max.compaction.lag.ms"] = str(between(4_500, 9_000))
    return replace(topic, takes_large=False, keys=world.random.choice((2, 5, 12)), configs=configs)


def _settings(world: World) -> dict[str, str]:
    chance, between, choice = world.chance, world.between, world.random.choice
    threads = choice((1, 1, 2))
    settings = {
        "log.cleaner.threads": str(threads),
        "log.cleaner.backoff.ms": str(between(20, 1_500)),
        "log.cleaner.min.cleanable.ratio": choice(("0", "0.1", "0.5")),
        "log.cleaner.delete.retention.ms": _delete_retention_ms(world),
    }
    if chance(0.4):
        settings["log.cleaner.dedupe.buffer.size"] = str(threads * _SMALLEST_MAP_BYTES)
        if chance(0.5):
            settings["log.cleaner.io.buffer.load.factor"] = _OF_FEW_KEYS
    if chance(0.2):
        settings["log.cleaner.io.max.bytes.per.second"] = str(between(20_000, 300_000))
    if chance(0.6):
        settings["offsets.topic.segment.bytes"] = str(between(1_200, 3_600))
    if chance(0.6):
        settings["transaction.state.log.segment.bytes"] = str(between(600, 3_000))
    return settings


def _delete_retention_ms(world: World) -> str:
    return str(world.random.choice((0, 0, world.between(300, 4_000), _A_DAY_MS)))
