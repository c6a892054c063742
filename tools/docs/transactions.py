"""Prints docs/transactions.md: what a transaction guarantees, its states, and what each answers."""

from collections.abc import Iterator

from klog_broker.config.transaction_rows import TRANSACTIONS
from klog_broker.coordinator.transaction.states import (
    ANSWERS,
    LASTING,
    REMARKS,
    TRANSITIONS,
    Asked,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.state_records.transaction_log import TransactionState

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit tools/docs/transactions.py and
     broker/klog_broker/coordinator/transaction/states.py, not this page. -->
# Transactions

A producer with a `transactional.id` writes records to any partitions, and positions of consumer
groups, so that readers with `isolation.level=read_committed` see all of it or nothing.

## What is guaranteed

- **All or nothing.** EndTxn is answered when the decision is a record in `__transaction_state` that
  would survive the loss of the broker. From then on the transaction ends as decided: its markers
  are written into every partition, by this process or by the one after it, however often it is lost
  meanwhile. A partition that gets a marker twice takes no harm.
- **Once.** A producer is fenced as soon as another one begins to use its id (InitProducerId): what
  it still asks is refused by every API, and its records by every partition. Its open transaction
  is aborted. Before a record of a transaction is appended, the coordinator is asked whether the
  partition takes part (KIP-890): no late record can begin a transaction that nobody ends.
- **Nobody waits for ever.** A transaction that is open longer than its time-out is aborted by the
  broker, at the latest `transaction.abort.timed.out.transaction.cleanup.interval.ms` later.
- **Positions with records.** Offsets that a transaction commits (TxnOffsetCommit) count when its
  marker is applied. Whoever reads them before with require_stable (OffsetFetch 7, as Kafka's
  consumers do) is told UNSTABLE_OFFSET_COMMIT, and asks again (KIP-447).

Both kinds of clients are served: those that add partitions first (AddPartitionsToTxn 0-3,
AddOffsetsToTxn, EndTxn 0-4), and those of `transaction.version` 2, which let Produce 12 and
TxnOffsetCommit 5 add them, and whose epoch rises with every end (EndTxn 5). ApiVersions of a broker
that runs alone tells `transaction.version` 2 as a finalized feature. In a cluster over ZooKeeper
there are no features, as with Kafka 3.9: clients take the protocol of the first kind.

## Where the state is

The state of an id is one record in `__transaction_state`, in Kafka's format (version 1, with the
tagged fields; 0 is read, too): producer id and epoch, the ids before and after, the partitions, the
times, and the client's transaction.version. The partition is chosen by the id's hash; the broker
that leads it coordinates the id. The topic is made when a client first asks for a coordinator.
`klog dump-log` shows its records.

## In a cluster

- **The id moves with its partition.** A broker that begins to lead one loads it, goes on with what
  was being ended, and serves then (COORDINATOR_LOAD_IN_PROGRESS before). One that resigns drops
  what it knew; whoever waits is told NOT_COORDINATOR, and so is all that was not replicated yet.
  One that leads on in a newer epoch, since a follower was lost, goes on with what it knows.
- **Markers go to the leaders of the partitions**, whichever brokers these are (WriteTxnMarkers 1,
  over a connection of its own to each, with all that waits in one request). A leader that does not
  answer is asked again after 100 ms, then less and less often up to once a second; it is looked up
  anew each time. A partition counts as deleted when the coordinator's own metadata do not have it,
  and the controller has told it of all there are, among them the names of topics that it cannot
  read.
- **A coordinator that is one no longer is fenced**: its markers carry the leader epoch of its
  partition, and a partition that has seen a newer one refuses them
  (TRANSACTION_COORDINATOR_FENCED).
- **The coordinator is asked by other brokers** whether a partition takes part, before a record is
  appended (AddPartitionsToTxn 4 and later). While it does not answer, Produce is answered with
  NOT_ENOUGH_REPLICAS and TxnOffsetCommit with COORDINATOR_LOAD_IN_PROGRESS: clients ask again. A
  marker that comes between the answer and the append voids the answer (INVALID_TXN_STATE).

```mermaid
stateDiagram-v2
    [*] --> Empty
"""

_STEPS = """\
    Dead --> [*]
```

## Steps

Every change of a state is a row here, and the coordinator refuses any other.

| from | to | when |
|---|---|---|
"""

_ANSWERS = """
## What each state answers

To the producer whose id and epoch are the current ones. Others are refused in any state:
INVALID_PRODUCER_ID_MAPPING for another producer id, PRODUCER_FENCED for another epoch (clients of
the oldest versions know INVALID_PRODUCER_EPOCH for it). InitProducerId needs neither: a new process
fences the one before. With both (KIP-360) it raises its own epoch.

"""

_SETTINGS = """
## Settings

| setting | default | |
|---|---|---|
"""

_DIFFERENT = """
## What differs from Kafka

- A transaction keeps the `transaction.version` that it was begun with. Kafka 4.3 aborts one that
  timed out under the broker's version, and takes each EndTxn by its own. Here only EndTxn 0 to 4
  changes it, to 0: their answers have no place for the epoch that version 2 would begin.
- InitProducerId that names an epoch which is not the current one never aborts an open transaction:
  it is refused with PRODUCER_FENCED. Kafka aborts the transaction of the newer producer then.
- After an end the next transaction can begin at once where all its partitions are led by the
  coordinator's own broker, and a new process takes over the id with its first InitProducerId:
  clients see CONCURRENT_TRANSACTIONS only while one of the partitions cannot be written to.
- Two questions about one transaction that wait for the same coordinator are asked one after the
  other. Kafka answers the first of them with NETWORK_EXCEPTION, and its client asks again.
- A marker that a partition refuses for good (it knows a newer epoch of the producer or a newer
  coordinator) counts as written. Kafka's transaction waits for the next load of its shard then.
- `__consumer_offsets` and `__transaction_state` have the numbers of partitions and the policy of
  the broker's settings, whoever creates them; CreateTopics says so. Kafka lets clients make them
  otherwise, and its coordinators never work then.
- Two-phase commit (KIP-939, InitProducerId 6) is off and cannot be switched on, and
  `transaction.partition.verification.enable` cannot be switched off.
- The regular expressions of ListTransactions 2 neither look around nor back: they are matched in a
  time that grows with the ids alone. Others are refused (INVALID_REGULAR_EXPRESSION).
- There is no authorizer: whoever reaches the broker may use any transactional id.
"""


def transaction_page() -> str:
    """docs/transactions.md."""
    lines = [_HEAD + "\n".join(_arrows())]
    lines.append(_STEPS + "\n".join(_steps()))
    lines.append(_ANSWERS + "\n".join(_answers()))
    lines.append(_SETTINGS + "\n".join(_settings()))
    return "\n".join(lines) + "\n" + _DIFFERENT


def _arrows() -> Iterator[str]:
    for before, steps in TRANSITIONS.items():
        for after in steps:
            yield f"    {before.kafkas_name} --> {after.kafkas_name}"


def _steps() -> Iterator[str]:
    for before, steps in TRANSITIONS.items():
        for after, why in steps.items():
            yield f"| {before.kafkas_name} | {after.kafkas_name} | {why} |"


def _answers() -> Iterator[str]:
    states = [*sorted(LASTING), TransactionState.DEAD]
    yield f"| asked | {' | '.join(state.kafkas_name for state in states)} |"
    yield "|---" * (1 + len(states)) + "|"
    for asked in Asked:
        cells = (_answer(asked, state) for state in states)
        yield f"| {asked.value} | {' | '.join(cells)} |"


def _answer(asked: Asked, state: TransactionState) -> str:
    error = ANSWERS[asked][state]
    told = "done" if error is ErrorCode.NONE else error.name
    return REMARKS.get((asked, state), told)


def _settings() -> Iterator[str]:
    for row in TRANSACTIONS:
        yield f"| `{row.name}` | {row.default} | {row.doc} |"
