"""Transactions of one id under any order of requests, time-outs, losses and restarts.

The model knows which process was handed the id last and which before, and checks what Kafka
promises to each of them.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.coordinator.transaction.decisions import (
    TransactionDecision,
    aborted,
    add_partitions,
    completed,
    initialize,
    needs_producer_id,
)
from klog_broker.coordinator.transaction.end_decisions import decide_end, end_needs_producer_id
from klog_broker.coordinator.transaction.states import ENDED, ENDING
from klog_broker.coordinator.transaction.transaction_metadata import (
    VERSION_RAISING,
    ProducerIdAndEpoch,
    TransactionMetadata,
    from_record,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.transaction_log import TransactionState
from tests.support.coordinator.transaction_records import to_record

NONE = ErrorCode.NONE
FATAL = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
NEAR_THE_END = 32_763
TIMEOUT_MS = 100


class World:
    """One id at a coordinator, and the processes that have used it. Answers may be lost."""

    def __init__(self, version: int, first_epoch: int) -> None:
        self.version = version
        self.known: TransactionMetadata | None = None
        self.first_epoch = first_epoch
        self.next_id = 1_000
        self.now_ms = 0
        self.processes: list[ProducerIdAndEpoch] = []
        """The newest is the owner; what each of them believes to be."""
        self.outcomes: dict[int, bool] = {}
        self.begun = 0
        self.decided: bool | None = None

    def fresh(self, needed: bool) -> int:
        self.next_id += needed
        return self.next_id if needed else -1

    def write_decision(self, decision: TransactionDecision) -> None:
        """Write a decision; each step must be in the table (the decisions check that)."""
        if decision.becomes is None:
            return
        before = self.known
        after = decision.becomes
        assert after.producer_id >= 0
        assert 0 <= after.producer_epoch <= 32_767
        if before is not None and before.state in ENDING:
            assert (before.state is TransactionState.PREPARE_COMMIT) == (
                after.state is TransactionState.COMPLETE_COMMIT
            )
            assert after.state in ENDED
        if after.state in ENDING and before is not None:
            assert after.partitions == before.partitions
            # The marker of a client that raises epochs is one ahead of its data (KIP-890).
            raised = after.producer_epoch - before.producer_epoch
            assert raised in ((1,) if after.raises_epoch else (0, 1))
            assert after.client_version <= before.client_version or before.state in ENDED
        self.known = after

    def start_process(self) -> None:
        """A new process runs until it owns the id: three requests at most."""
        for _ in range(3):
            needed = needs_producer_id(self.known, None)
            decision = initialize(self.known, None, TIMEOUT_MS, self.now_ms, self.fresh(needed))
            if self.known is None and decision.becomes is not None:
                become = decision.becomes._replace(producer_epoch=self.first_epoch)
                decision = decision._replace(becomes=become, producer_epoch=self.first_epoch)
            self.write_decision(decision)
            if decision.error is NONE:
                owner = ProducerIdAndEpoch(decision.producer_id, decision.producer_epoch)
                assert owner not in self.processes
                self.processes.append(owner)
                return
            assert decision.error is ErrorCode.CONCURRENT_TRANSACTIONS
            self.write_markers()
        raise AssertionError("a new process never gets the id")

    def write_markers(self) -> None:
        if self.known is not None and self.known.state in ENDING:
            self.write_decision(TransactionDecision(NONE, completed(self.known, self.now_ms)))

    def request(self, name: str, number: int, is_lost: bool) -> None:
        if not self.processes:
            return
        index = number % len(self.processes)
        who, before = self.processes[index], self.known
        is_owner = index == len(self.processes) - 1
        if name == "add":
            where = TopicPartition("t", number % 3)
            decision = add_partitions(self.known, who, [where], self.version, self.now_ms)
        elif name == "init":
            needed = needs_producer_id(self.known, who)
            decision = initialize(self.known, who, TIMEOUT_MS, self.now_ms, self.fresh(needed))
        else:
            needed = end_needs_producer_id(self.known, self.version)
            decision = decide_end(
                self.known,
                who,
                self.version,
                self.now_ms,
                is_commit=name == "commit",
                next_producer_id=self.fresh(needed),
            )
        self.write_decision(decision)
        if not is_owner:
            assert self.known == before, "a zombie has changed something"
            assert name != "add" or decision.error in FATAL
        if is_owner and decision.error is NONE and decision.producer_id >= 0 and not is_lost:
            self.processes[index] = ProducerIdAndEpoch(
                decision.producer_id, decision.producer_epoch
            )

    def restart(self) -> None:
        """Lose all state but the records."""
        if self.known is not None:
            self.known = from_record(to_record(self.known))

    def sweep(self) -> None:
        self.now_ms += 60
        if self.known is not None and self.known.is_overdue(self.now_ms):
            needed = needs_producer_id(self.known, None)
            becomes = aborted(self.known, self.now_ms, self.fresh(needed))
            self.write_decision(TransactionDecision(NONE, becomes))


STEPS = st.lists(
    st.one_of(
        st.just(("start",)),
        st.just(("markers",)),
        st.just(("restart",)),
        st.just(("sweep",)),
        st.tuples(
            st.sampled_from(["add", "add", "init", "commit", "abort"]),
            st.integers(0, 5),
            st.booleans(),
        ),
    ),
    max_size=60,
)


@settings(max_examples=400)
@given(STEPS, st.sampled_from([0, VERSION_RAISING]), st.sampled_from([0, NEAR_THE_END]))
def test_zombies_change_nothing_and_what_was_decided_stays(
    steps: list[tuple[str, int, bool]], version: int, first_epoch: int
) -> None:
    world = World(version, first_epoch)
    for name, *rest in steps:
        if name == "start":
            world.start_process()
        elif name == "markers":
            world.write_markers()
        elif name == "restart":
            world.restart()
        elif name == "sweep":
            world.sweep()
        else:
            world.request(name, int(rest[0]), bool(rest[1]))
    # After any history a new process can take over.
    world.start_process()
    world.request("add", len(world.processes) - 1, False)
    assert world.known is not None
    assert world.known.state is TransactionState.ONGOING
