"""Prints docs/transactions.md: what a transaction guarantees, its states, and what each answers."""

from collections.abc import Iterator

from klog_broker.config.transaction_rows import TRANSACTIONS
from klog_broker.coordinator.transaction.states import (
    LASTING,
    REMARKS,
    REQUEST_ERRORS,
    TRANSITIONS,
    TransactionRequest,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.state_records.transaction_log import TransactionState

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit tools/docs/transactions.py and
     broker/klog_broker/coordinator/transaction/states.py, not this page. -->
# Transactions

A producer with a `transactional.id` writes records to any partitions, and offsets of consumer
groups, so that readers with `isolation.level=read_committed` see all of them or none. Administer
transactions with [`klog transactions`](command-line.md#transactions):

```
klog transactions list --state Ongoing
```

## Guarantees

- **All or nothing.** The coordinator answers EndTxn when all in-sync replicas of its partition of
  `__transaction_state` have the record of the decision. The transaction then ends as decided:
  this coordinator or its successor writes the markers into every partition. A second marker in a
  partition does no harm.
- **Once.** InitProducerId of a new producer with the same transactional id fences the old producer:
  every API of transactions refuses its requests, every partition refuses its records, and its open
  transaction is aborted. Before a broker appends a transaction's first record to a partition, it
  asks the coordinator whether the partition takes part (KIP-890), so that a late record cannot
  begin a transaction that never ends.
- **Bounded time.** The coordinator begins to abort a transaction that exceeds its timeout, at the
  latest `transaction.abort.timed.out.transaction.cleanup.interval.ms` later.
- **Offsets with records.** Offsets of a transaction (TxnOffsetCommit) become visible with its
  commit marker. Before that, OffsetFetch with require_stable (version 7, as in Kafka's consumers)
  gets UNSTABLE_OFFSET_COMMIT, and the client retries (KIP-447).

klog serves both protocols of transactions: clients that add partitions first
(AddPartitionsToTxn 0-3, AddOffsetsToTxn, EndTxn 0-4), and clients of `transaction.version` 2, for
which Produce 12 and TxnOffsetCommit 5 add partitions and each EndTxn 5 raises the epoch. A
standalone broker finalizes `transaction.version` 2 in ApiVersions. A cluster with ZooKeeper has no
features, as with Kafka 3.9, so clients use the first protocol.

## Where the state is

The state of a transactional id is one record in `__transaction_state`, in Kafka's format (version
1 with tagged fields; klog reads 0, too): producer ids and epochs, partitions, times, and the
client's `transaction.version`. A hash of the id selects the partition, and the broker that leads
this partition is the id's coordinator. The topic is created when a client first looks for a
coordinator. `klog dump-log` shows its records.

## In a cluster

- **Coordinators move with their partitions.** A new leader loads the partition
  (COORDINATOR_LOAD_IN_PROGRESS), continues transactions that were ending, and then serves. An old
  leader drops its state and answers NOT_COORDINATOR to waiting clients and for changes that were
  not replicated. A broker that stays the leader in a newer leader epoch keeps its state.
- **Markers go to the leaders of the partitions** (WriteTxnMarkers 1), many in one request to each
  other broker over a separate connection. The coordinator retries after 100 ms, doubles this pause
  up to one second, and looks up the leader each time. A partition counts as deleted if the
  coordinator's metadata lacks it and the controller has sent the complete list of partitions.
- **Former coordinators are fenced**: markers carry the leader epoch of the coordinator's partition,
  and a partition that has seen a newer one refuses them (TRANSACTION_COORDINATOR_FENCED).
- **Other brokers ask the coordinator** whether a partition takes part before they append its first
  record (AddPartitionsToTxn 4 and later). While there is no response, Produce gets
  NOT_ENOUGH_REPLICAS and TxnOffsetCommit COORDINATOR_LOAD_IN_PROGRESS, and clients retry. A marker
  that arrives between the response and the append makes the response invalid (INVALID_TXN_STATE).

```mermaid
stateDiagram-v2
    [*] --> Empty
"""

_STEPS = """\
    Dead --> [*]
```

## Steps

The coordinator changes a transaction's state only as a row of the table below says.

| from | to | when |
|---|---|---|
"""

_ANSWERS = """
## What each state answers

The table below shows how each state answers the producer with the current id and epoch. Every state
refuses other producers: with INVALID_PRODUCER_ID_MAPPING for another producer id, with
PRODUCER_FENCED for another epoch (INVALID_PRODUCER_EPOCH for the oldest clients), except a repeated
EndTxn 5 with the previous epoch. InitProducerId needs neither id nor epoch: a new process fences
the old one. InitProducerId with both (KIP-360) raises the producer's own epoch.

"""

_SETTINGS = """
## Settings

| setting | default | |
|---|---|---|
"""

_DIFFERENT = """
## What differs from Kafka

- klog's transaction keeps the `transaction.version` that it began with. Kafka 4.3 aborts a
  timed-out transaction by the broker's version and handles each EndTxn by the request's version. In
  klog only EndTxn 0 to 4 changes the version, to 0, because its response has no field for the epoch
  of version 2.
- InitProducerId with an epoch that is not current never aborts an open transaction, and gets
  PRODUCER_FENCED. Kafka aborts the newer producer's transaction.
- If the coordinator's broker leads all partitions of a transaction, the next transaction can begin
  immediately, and a new process takes over the id with its first InitProducerId. Clients then see
  CONCURRENT_TRANSACTIONS only while one of the partitions is not writable.
- If a broker has two requests to verify partitions of one transaction, it sends them to the
  coordinator one after the other. Kafka fails the first with NETWORK_EXCEPTION, and its client
  retries.
- A marker that a partition refuses permanently, because the partition has seen a newer producer or
  coordinator epoch, counts as written. Kafka's transaction waits for the next load of the
  coordinator.
- `__consumer_offsets` and `__transaction_state` always have the partitions and the cleanup policy
  of the broker's settings, which the response of CreateTopics reports. Kafka lets clients create
  them with other values, and its coordinators then never work.
- Two-phase commit (KIP-939, InitProducerId 6) is off, and
  `transaction.partition.verification.enable` is on; no setting changes this.
- Regular expressions of ListTransactions 2 have no lookaround, backreferences or named character
  classes, and matching takes linear time. Other expressions get INVALID_REGULAR_EXPRESSION.
- klog has no authorizer: any client may use any transactional id.
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
    for asked in TransactionRequest:
        cells = (_answer(asked, state) for state in states)
        yield f"| {asked.value} | {' | '.join(cells)} |"


def _answer(asked: TransactionRequest, state: TransactionState) -> str:
    error = REQUEST_ERRORS[asked][state]
    told = "done" if error is ErrorCode.NONE else error.name
    return REMARKS.get((asked, state), told)


def _settings() -> Iterator[str]:
    for row in TRANSACTIONS:
        yield f"| `{row.name}` | {row.default} | {row.doc} |"
