"""The history of a run: what clients and machine have reported, by family of promises."""

from tests.simulation.checks.compaction import Compaction
from tests.simulation.checks.groups import Groups
from tests.simulation.checks.high_watermarks import Marks
from tests.simulation.checks.leftovers import Rest
from tests.simulation.checks.records import Records
from tests.simulation.checks.retention import Retention
from tests.simulation.checks.transactions import Transactions
from tests.simulation.machine import Watcher
from tests.simulation.plan import Plan
from tests.simulation.world import World

_SHORTEST_RETENTION_MS = 86_400_000
"""The default of producer.id.expiration.ms, the shortest of the broker's expirations."""


class History:
    """Clients report to ``records``, ``groups`` and ``transactions``, the machine to all."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.records = Records(world, plan.topics)
        self.compaction = Compaction(world, self.records)
        self.groups = Groups(plan.flushes_all)
        self.groups.forgets_soon = plan.has_years
        self.transactions = Transactions(world)
        self._cleans = plan.cleans
        self._has_transactions = bool(plan.transactional)
        self.producer_ids: set[int] = set()
        self._world = world
        world.clock.on_jump = self._clock_jumps

    def _clock_jumps(self, by_ms: int) -> None:
        """Let idle producers and offsets expire after a long jump forward; short ones do not."""
        if by_ms >= _SHORTEST_RETENTION_MS:
            self.records.producers_expire()
            self.groups.offsets_expire(self._world.now_ms)

    @property
    def watchers(self) -> list[Watcher]:
        watchers = [
            Retention(self.records, self.compaction),
            self.records,
            self.groups,
            Marks(),
            Rest(),
        ]
        if self._cleans:
            watchers.append(self.compaction)
        return [*watchers, self.transactions] if self._has_transactions else watchers
