"""The plan of a run, drawn from the seed: settings, topics, duration and clients."""

from dataclasses import dataclass, field, replace

from tests.simulation.world import World

CHAOS_MS = (6_000, 16_000)
LONGEST_TIMEOUT_MS = 4_000
"""The longest timeout of a transaction."""
LONGEST_SWEEP_MS = 1_500
"""The longest interval between the broker's searches for overdue transactions."""


@dataclass(frozen=True)
class TopicPlan:
    """A topic. ``is_flushed``: its acknowledged records survive a power cut."""

    name: str
    partitions: int
    is_flushed: bool
    takes_large: bool = False
    """Whether records of megabytes may be sent to the topic."""
    configs: dict[str, str] = field(default_factory=dict)
    keys: int = 0
    """How many keys each partition of a compacted topic has; 0 for other topics."""


@dataclass(frozen=True)
class Plan:
    """Everything that the seed decides before the run begins."""

    chaos_ms: int
    topics: tuple[TopicPlan, ...]
    flushes_all: bool
    with_kernel: bool
    has_socket_calls: bool
    has_cold_pages: bool
    disk_slowness: int
    idempotent_producers: int
    plain_producers: int
    consumers: int
    members: int
    has_admin: bool
    has_large_records: bool
    transactional: tuple[int, ...]
    """For each transactional id, how many processes share it."""
    members_in_transactions: bool
    """Whether the group's members commit their offsets in transactions."""
    has_power_cuts: bool
    """Whether power cuts happen; false if they could take the state of transactions.

    With one replica that is not flushed, a power cut may lose transactions, as in Kafka, so nothing
    is promised of them.
    """
    settings: dict[str, str]
    cleans: bool = False
    """Whether topics are compacted, and the log cleaner runs all the time."""
    has_years: bool = False
    """Whether the wall clock is set a year off now and then."""
    keeps_names_in_order: bool = True
    """Whether a power cut keeps a prefix of the unsynced file names, instead of any subset."""

    def line(self) -> str:
        """The plan in one line, for the trace and for a reader of the summary."""
        topics = ", ".join(
            f"{each.name}({each.partitions}{' flushed' if each.is_flushed else ''}"
            f"{f' {each.keys} keys' if each.keys else ''})"
            for each in self.topics
        )
        return (
            f"chaos_ms={self.chaos_ms} topics={topics} kernel={self.with_kernel} "
            f"at_once={self.has_socket_calls} cold={self.has_cold_pages} "
            f"slowness={self.disk_slowness} "
            f"idempotent={self.idempotent_producers} plain={self.plain_producers} "
            f"consumers={self.consumers} members={self.members} admin={self.has_admin} "
            f"large={self.has_large_records} transactional={self.transactional} "
            f"committing={self.members_in_transactions} "
            f"dirs={self.settings['log.dirs']} cleans={self.cleans} "
            f"names_in_order={self.keeps_names_in_order} years={self.has_years}"
        )


def make_plan(world: World) -> Plan:
    """Draw a plan that has some of the features, and never all at once."""
    chance, between, random = world.chance, world.between, world.random
    has_transactions = chance(0.4)
    flushes_all = chance(0.6 if has_transactions else 0.3)
    topics = []
    for number in range(between(1, 3)):
        is_flushed = flushes_all or chance(0.4)
        configs = {"flush.messages": "1"} if is_flushed else {}
        if chance(0.5):
            configs["segment.bytes"] = str(between(1_500, 6_000))
            if chance(0.5):
                configs["retention.ms"] = str(between(2_000, 20_000))
            if chance(0.4):
                configs["retention.bytes"] = str(between(2_000, 30_000))
        if chance(0.3):
            configs["index.interval.bytes"] = "0"
        if not is_flushed and chance(0.4):
            configs["flush.ms"] = str(between(100, 2_000))
        takes_large = "segment.bytes" not in configs
        if takes_large:
            configs["max.message.bytes"] = "4000000"
        topics.append(TopicPlan(f"t{number}", between(1, 3), is_flushed, takes_large, configs))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "auto.create.topics.enable": "false",
        "log.index.size.max.bytes": "1200",
        "offsets.topic.num.partitions": str(between(1, 3)),
        "offsets.topic.segment.bytes": str(between(2_000, 20_000)),
        "group.initial.rebalance.delay.ms": str(between(0, 300)),
        "group.min.session.timeout.ms": "500",
        "log.retention.check.interval.ms": str(between(500, 5_000)),
        "log.dirs": random.choice(("/data", "/data", "/data,/more")),
        "log.flush.scheduler.interval.ms": "500",
        "log.flush.offset.checkpoint.interval.ms": str(between(1_000, 8_000)),
        "log.segment.delete.delay.ms": "1000",
        "replica.high.watermark.checkpoint.interval.ms": "2000",
        "transaction.state.log.num.partitions": str(between(1, 2)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(
            between(200, LONGEST_SWEEP_MS)
        ),
    }
    if flushes_all:
        settings["log.flush.interval.messages"] = "1"
    idempotent, plain = between(0, 2), between(0, 1)
    if idempotent + plain == 0:
        idempotent = 1
    plan = Plan(
        chaos_ms=between(*CHAOS_MS),
        topics=tuple(topics),
        flushes_all=flushes_all,
        with_kernel=chance(0.6),
        has_socket_calls=chance(0.6),
        has_cold_pages=chance(0.3),
        disk_slowness=random.choice((1, 1, 8)),
        idempotent_producers=idempotent,
        plain_producers=plain,
        consumers=between(0, 1) + has_transactions,
        members=random.choice((0, 2, 3, 3) if flushes_all else (0, 0, 2, 3)),
        has_admin=chance(0.3),
        has_large_records=chance(0.2),
        transactional=tuple(between(1, 3) for _ in range(has_transactions * between(1, 2))),
        members_in_transactions=False,
        has_power_cuts=flushes_all or not has_transactions,
        settings=settings,
    )
    in_transactions = has_transactions and plan.members > 0 and chance(0.5)
    return replace(plan, members_in_transactions=in_transactions)
