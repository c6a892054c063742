"""The whole scheme of the exactly-once sink in small: a broker, tasks, drivers, their deaths.

Tasks and drivers are generators that yield between two requests, and decide by the sink's own pure
rules. A schedule is a random order of their steps, of deaths, of time that passes and of starts.
Every row that the broker commits is counted; `World.check` says what went wrong.

Kafka is modelled where the scheme stands on it: epochs, fencing, time-outs, a commit that is
decided before readers of offsets see it, rows that expire. ``bugs`` names what is left out of the
scheme, or done wrongly, so that a test can see the model catch it.
"""

import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field

from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark
from pyspark_klog.client.transactions.producer import OpenTransaction
from pyspark_klog.spark.sink.exactly_once import decisions
from pyspark_klog.spark.sink.exactly_once.decisions_of_commit import (
    DAY_MS,
    MicroBatchResults,
    Refuse,
    Seen,
    decide_commit,
    ended_by_themselves,
)
from pyspark_klog.spark.sink.exactly_once.progress import TaskProgress

RETENTION_MS = 7 * DAY_MS
ROWS_A_BATCH = 6
TOPIC = "t"
_MARK_KEPT_MS = 3650 * DAY_MS

Row = tuple[int, int]
"""A row of input: its batch, and its number there."""


class Fenced(Exception):
    """The producer lost its transactional id, or its transaction ended otherwise."""


class AttemptFailed(Exception):
    """An attempt of a task failed; Spark starts another one."""


@dataclass
class Id:
    """A transactional id, its transaction, and the group of the same name."""

    epoch: int = -1
    is_open: bool = False
    rows: list[Row] = field(default_factory=list)
    pending: ProgressRow | None = None
    deciding: ProgressRow | None = None
    """Committed, but not seen yet by readers that do not require stable offsets."""
    row: ProgressRow | None = None
    ended_epoch: int = -1
    """The epoch of the transaction that was committed last."""


class FakeBroker:
    """Transactions and groups of one sink. ``version`` is its transaction.version."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.ids: dict[int, Id] = {}
        self.mark: RunMark | None = None
        self.mark_until_ms = 0
        self.now_ms = 0
        self.committed: Counter[Row] = Counter()
        self.trace: list[str] = []

    def id(self, index: int) -> Id:
        return self.ids.setdefault(index, Id())

    def init(self, index: int) -> int:
        found = self.id(index)
        if found.is_open:
            self._abort(found)
        found.epoch += 1
        self._note(f"init {index} -> {found.epoch}")
        return found.epoch

    def write(self, index: int, epoch: int, rows: list[Row]) -> None:
        found = self._of(index, epoch)
        found.is_open = True
        found.rows += rows

    def commit_row(self, index: int, epoch: int, row: ProgressRow) -> None:
        found = self._of(index, epoch)
        found.is_open = True
        found.pending = row
        self._note(f"row {index} epoch {epoch}: {row.batch_id} of {row.run_id}, {row.row_count}")

    def commit_transaction(self, index: int, epoch: int) -> None:
        """Commit. A repeated commit is recognised."""
        found = self.id(index)
        epoch_after = epoch + (1 if self.version == 2 else 0)
        if not found.is_open and found.ended_epoch == epoch and found.epoch == epoch_after:
            return
        self._of(index, epoch)
        if not found.is_open:
            raise Fenced
        self.committed.update(found.rows)
        self._note(f"commit {index} epoch {epoch}: {found.rows}")
        self.apply(index)
        found.deciding, found.pending = found.pending, None
        found.is_open, found.rows = False, []
        found.ended_epoch = epoch
        if self.version == 2:
            found.epoch += 1

    def time_out(self, index: int) -> None:
        found = self.id(index)
        if found.is_open:
            self._abort(found)

    def apply(self, index: int) -> None:
        """The marker reaches the group."""
        found = self.id(index)
        if found.deciding is not None:
            found.row, found.deciding = found.deciding, None

    def is_stable(self, index: int) -> bool:
        found = self.id(index)
        return found.pending is None and found.deciding is None

    def fetch(self, index: int) -> ProgressRow | None:
        self._expire(index)
        return self.id(index).row

    def fetch_mark(self) -> RunMark | None:
        if self.mark is not None and self.now_ms >= self.mark_until_ms:
            self.mark = None
        return self.mark

    def store_mark(self, mark: RunMark, kept_ms: int) -> None:
        self.mark, self.mark_until_ms = mark, self.now_ms + kept_ms
        self._note(f"mark {mark.batch_id} of {mark.run_id}")

    def delete_group(self, index: int) -> None:
        self.apply(index)
        self.id(index).row = None

    def _note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms / DAY_MS:.4f} {text}")

    def known(self) -> list[int]:
        return sorted(self.ids)

    def open_ids(self) -> frozenset[int]:
        return frozenset(index for index, found in self.ids.items() if found.is_open)

    def _expire(self, index: int) -> None:
        found = self.id(index)
        if found.row is not None and self.now_ms - found.row.time_ms > RETENTION_MS:
            found.row = None

    def _of(self, index: int, epoch: int) -> Id:
        found = self.id(index)
        if found.epoch != epoch:
            raise Fenced
        return found

    def _abort(self, found: Id) -> None:
        found.is_open, found.rows, found.pending = False, [], None
        found.epoch += 1


@dataclass
class Worker:
    """A Python worker, which runs one attempt after the other and keeps its producers."""

    held: dict[int, tuple[int, ProgressRow, ProgressRow | None]] = field(default_factory=dict)
    """Transactional ids that it may go on with: the epoch, the row that its last transaction
    committed, and the row before that."""
    is_busy: bool = False


@dataclass
class Attempt:
    """An attempt of a task."""

    index: int
    worker: Worker
    steps: Generator[None, None, TaskProgress]
    result: TaskProgress | None = None
    is_over: bool = False
    asleep: int = 0
    """Number of the others' steps during which it does nothing: a zombie that wakes late."""


@dataclass(frozen=True)
class Plan:
    """The batches and the task counts of one run of the query, or of one batch write."""

    run_id: str
    first_batch: int
    last_batch: int
    task_count: int
    task_counts: tuple[int, ...] = ()
    """Task counts of the batches after the first one; ``task_count`` unless given."""
    is_batch_write: bool = False
    continue_on_missing: bool = False

    def tasks_of(self, batch_id: int) -> int:
        after = batch_id - self.first_batch - 1
        return self.task_counts[after] if 0 <= after < len(self.task_counts) else self.task_count


class World:
    """A broker, and all tasks and drivers that are alive."""

    copies = 0.03
    """How likely a task is copied, at each step of the driver."""
    delays = 0.2
    """How likely an attempt begins late."""

    def __init__(self, seed: int, version: int, bugs: frozenset[str] = frozenset()) -> None:
        self.random = random.Random(seed)
        self.broker = FakeBroker(version)
        self.bugs = bugs
        self.attempts: list[Attempt] = []
        self.workers = [Worker() for _ in range(4)]
        self.done_batches: set[int] = set()
        """Batches of which a driver's commit() returned."""
        self.jobs: dict[str, tuple[int, int]] = {}
        """The batch whose tasks a run has under way, and their number."""
        self.is_idle = False
        """Whether the driver that began last is between two batches."""
        self.split_of: dict[int, set[int]] = {}
        """The numbers of tasks that each batch was written with."""

    # --- Spark -----------------------------------------------------------------------------------
    def run(self, plan: Plan) -> Generator[None, None, None]:
        """A driver: batch after batch. Raises AttemptFailed or Refused."""
        for batch_id in range(plan.first_batch, plan.last_batch + 1):
            self.is_idle = True
            yield
            self.is_idle = False
            count = plan.tasks_of(batch_id)
            self.split_of.setdefault(batch_id, set()).add(count)
            self.jobs[plan.run_id] = batch_id, count
            try:
                written = yield from self._job(plan, batch_id, count)
            except AttemptFailed:
                if plan.is_batch_write:
                    yield from self._forget(plan, count)
                raise
            del self.jobs[plan.run_id]
            yield from self._commit(plan, batch_id, written)
            self.done_batches.add(batch_id)

    def _job(
        self, plan: Plan, batch_id: int, count: int
    ) -> Generator[None, None, list[TaskProgress]]:
        """Every task runs until an attempt succeeds: retries, and copies at random."""
        mine: dict[int, list[Attempt]] = {index: [] for index in range(count)}
        failures: Counter[int] = Counter()
        results: dict[int, TaskProgress] = {}
        while len(results) < count:
            for index in range(count):
                if index in results:
                    continue
                for each in mine[index]:
                    if each.is_over and each.result is not None:
                        results.setdefault(index, each.result)
                alive = [each for each in mine[index] if not each.is_over]
                lost = [each for each in mine[index] if each.is_over and each.result is None]
                failures[index] = len(lost)
                if failures[index] >= 4:
                    raise AttemptFailed
                wants_copy = len(alive) == 1 and self.random.random() < self.copies
                if index not in results and (not alive or wants_copy):
                    is_first = not lost
                    mine[index].append(self.start(plan, batch_id, index, count, is_first=is_first))
            yield
        # Spark kills the other copies of each task; some of these run on for a while.
        for attempts in mine.values():
            for each in attempts:
                if not each.is_over:
                    self.forsake(each)
        return [results[index] for index in range(count)]

    def start(
        self, plan: Plan, batch_id: int, index: int, count: int, *, is_first: bool
    ) -> Attempt:
        free = [worker for worker in self.workers if not worker.is_busy]
        if not free:
            self.workers.append(Worker())
            free = self.workers[-1:]
        worker = self.random.choice(free)
        worker.is_busy = True
        steps = self._task(plan, worker, batch_id, index, count, is_first)
        attempt = Attempt(index, worker, steps)
        if self.random.random() < self.delays:
            attempt.asleep = self.random.choice([20, 60, 200])
        self.attempts.append(attempt)
        return attempt

    def kill(self, attempt: Attempt) -> None:
        """A worker ends with the attempt that is killed in it."""
        attempt.is_over = True
        if attempt.worker in self.workers:
            self.workers.remove(attempt.worker)

    def forsake(self, attempt: Attempt) -> None:
        """The driver waits no longer for the attempt: most are killed, some wake up much later."""
        if self.random.random() < 0.5:
            self.kill(attempt)
        else:
            attempt.asleep += self.random.choice([0, 100, 300])

    def start_late(self, plan: Plan) -> None:
        """A task of a driver that is gone begins all the same: its executor had it already."""
        if plan.run_id in self.jobs:
            batch_id, count = self.jobs[plan.run_id]
            attempt = self.start(plan, batch_id, self.random.randrange(count), count, is_first=True)
            attempt.asleep = self.random.choice([50, 150, 300])

    def step_attempt(self, attempt: Attempt) -> None:
        try:
            next(attempt.steps)
        except StopIteration as done:
            attempt.result = done.value
            attempt.is_over = True
            attempt.worker.is_busy = False
        except (AttemptFailed, Fenced):
            self.kill(attempt)

    # --- a task ----------------------------------------------------------------------------------
    def _task(
        self, plan: Plan, worker: Worker, batch_id: int, index: int, count: int, is_first: bool
    ) -> Generator[None, None, TaskProgress]:
        broker, bugs = self.broker, self.bugs
        rows = [(batch_id, number) for number in range(ROWS_A_BATCH) if number % count == index]
        now = decisions.CurrentTask(index, batch_id, plan.run_id, not plan.is_batch_write)
        yield
        before = broker.fetch(index)
        yield
        epoch = None
        if index in worker.held and broker.version == 2 and is_first:
            held_epoch, own, older = worker.held[index]
            if before in (own, older):
                before, epoch = own, held_epoch
        decision = yield from self._decide(before, now)
        is_sure = epoch is not None
        if isinstance(decision, decisions.Write) and epoch is None:
            worker.held.pop(index, None)
            epoch = broker.init(index)
            yield
            if "unstable second look" not in bugs:
                while not broker.is_stable(index):
                    # An epoch that was just given has nothing open; the last marker is under way.
                    if broker.id(index).epoch != epoch:
                        break
                    yield
            if "no second look" not in bugs:
                before = broker.fetch(index)
                decision = yield from self._decide(before, now)
            is_sure = before is not None and before.next_epoch == epoch
            if plan.is_batch_write and before is None and "no mark of the end" not in bugs:
                yield
                if broker.fetch_mark() is not None:
                    raise AttemptFailed
        if isinstance(decision, decisions.Verify):
            return self._verified(plan, index, decision.row, rows)
        assert isinstance(decision, decisions.Write) and epoch is not None
        ends_itself = decision.ends_itself and (is_sure or plan.is_batch_write)
        if "chain" in bugs:
            ends_itself = decision.ends_itself
        if "always ends itself" in bugs:
            ends_itself = True
        raised = 2 if broker.version == 2 else 1
        row = _row(plan.run_id, batch_id, rows, broker.now_ms, epoch + raised)
        worker.held.pop(index, None)
        try:
            for each in [rows[:1], rows[1:]]:
                yield
                broker.write(index, epoch, each)
            yield
            if "row apart" in bugs:
                self._row_apart(index, row)
            else:
                broker.commit_row(index, epoch, row)
            yield
            if not ends_itself:
                opened = OpenTransaction(f"p.q.n.{index}", 1, epoch, broker.version)
                return TaskProgress(f"p.q.n.{index}", TOPIC, row, before, opened, plan.run_id)
            broker.commit_transaction(index, epoch)
        except Fenced:
            return (yield from self._after_fenced(plan, index, now, rows))
        yield
        if broker.version == 2:
            worker.held[index] = epoch + 1, row, before
        return TaskProgress(f"p.q.n.{index}", TOPIC, row, before, None, plan.run_id)

    def _decide(
        self, row: ProgressRow | None, now: decisions.CurrentTask
    ) -> Generator[None, None, decisions.Verify | decisions.Write]:
        mark = None
        if decisions.needs_mark(row, now):
            yield
            mark = self.broker.fetch_mark()
        decision = decisions.decide_task(row, now, mark)
        if isinstance(decision, decisions.Fail):
            raise AttemptFailed
        return decision

    def _verified(
        self, plan: Plan, index: int, found: ProgressRow, rows: list[Row]
    ) -> TaskProgress:
        same = found.row_count == len(rows) and found.row_hash == _hash(rows)
        if not same and "no verification" not in self.bugs:
            raise AttemptFailed
        return TaskProgress(f"p.q.n.{index}", TOPIC, found, found, None, plan.run_id)

    def _after_fenced(
        self, plan: Plan, index: int, now: decisions.CurrentTask, rows: list[Row]
    ) -> Generator[None, None, TaskProgress]:
        while self.random.random() < 0.9:
            yield
            decision = decisions.after_fenced(self.broker.fetch(index), now)
            if isinstance(decision, decisions.Verify):
                return self._verified(plan, index, decision.row, rows)
            if isinstance(decision, decisions.Fail):
                break
        raise AttemptFailed

    def _row_apart(self, index: int, row: ProgressRow) -> None:
        self.broker.id(index).row = row

    # --- the driver's side -----------------------------------------------------------------------
    def _commit(
        self, plan: Plan, batch_id: int, written: list[TaskProgress]
    ) -> Generator[None, None, None]:
        if plan.is_batch_write:
            yield from self._forget(plan, len(written))
            return
        broker, bugs = self.broker, self.bugs
        if ended_by_themselves(written):
            return
        yield
        batch = MicroBatchResults("sink", batch_id, plan.run_id, dict(enumerate(written)))
        listed = [index for index in broker.known() if index >= len(written)]
        open_ids = broker.open_ids()
        if "no groups listed" in bugs:
            listed = [index for index in listed if broker.id(index).row is None]
        if "no transactions listed" in bugs:
            listed = [index for index in listed if broker.fetch(index) is not None]
        if "no fence" not in bugs:
            for index in listed:
                yield
                broker.init(index)
        rows: dict[int, ProgressRow] = {}
        for index in [*range(len(written)), *listed]:
            yield
            if index >= len(written) or written[index].opened is None:
                while not broker.is_stable(index) and "unstable rows" not in bugs:
                    yield
            row = broker.fetch(index)
            if row is not None:
                rows[index] = row
        mark = broker.fetch_mark()
        yield
        seen = Seen(rows, {}, mark, open_ids, broker.now_ms, RETENTION_MS)
        missing = plan.continue_on_missing or "missing rows taken for new" in bugs
        decision = decide_commit(batch, seen, continue_on_missing=missing)
        if isinstance(decision, Refuse):
            if "no comparison" not in bugs:
                raise Refused(decision.sentence)
            end = tuple(task.opened for task in written if task.opened is not None)
            new_mark = None
        else:
            end, new_mark = decision.end, decision.mark
        if new_mark is not None and "mark after" not in bugs:
            yield
            broker.store_mark(new_mark, _MARK_KEPT_MS)
        for opened in reversed(end) if "ends backwards" in bugs else end:
            yield
            index = int(opened.transactional_id.rsplit(".")[-1])
            try:
                broker.commit_transaction(index, opened.producer_epoch)
            except Fenced:
                if "goes on after a fence" not in bugs:
                    raise AttemptFailed from None
        if new_mark is not None and "mark after" in bugs:
            yield
            broker.store_mark(new_mark, _MARK_KEPT_MS)

    def _forget(self, plan: Plan, count: int) -> Generator[None, None, None]:
        broker = self.broker
        yield
        if "no mark of the end" not in self.bugs:
            broker.store_mark(RunMark(0, plan.run_id, broker.now_ms), DAY_MS)
        if "no fence at the end" not in self.bugs:
            for index in range(count):
                yield
                broker.init(index)
        for index in range(count):
            yield
            broker.delete_group(index)

    # --- what is promised ------------------------------------------------------------------------
    def doubled(self) -> list[Row]:
        return sorted(row for row, count in self.broker.committed.items() if count > 1)

    def lost(self) -> list[Row]:
        """Rows of batches that a driver finished, and that are not committed."""
        wanted = {(b, n) for b in self.done_batches for n in range(ROWS_A_BATCH)}
        return sorted(wanted - self.broker.committed.keys())


class Refused(Exception):
    """The driver refused a batch."""


def _row(run_id: str, batch_id: int, rows: list[Row], time_ms: int, next_epoch: int) -> ProgressRow:
    return ProgressRow(batch_id, run_id, len(rows), len(rows), _hash(rows), time_ms, 1, next_epoch)


def _hash(rows: list[Row]) -> int:
    return sum(1 << (number + 8 * (batch % 8)) for batch, number in rows)
