"""What each error code means at each step of a transaction, as one table. Pure.

The table follows Kafka 4.3's TransactionManager. It differs where a commit of offsets is refused
for what is in it (too large, a topic without permission): nothing but the transaction is lost by
that, so the producer stays usable.
"""

from enum import Enum, auto

from pyspark_klog.errors import ErrorCode


class Outcome(Enum):
    """What is to be done after an answer; of several in one answer the last of this list counts."""

    DONE = auto()
    RETRY = auto()
    FIND = auto()
    """Another broker coordinates now: find it, then retry."""
    ABORT = auto()
    FATAL = auto()
    FENCED = auto()
    """As FATAL: a newer producer has the transactional id."""


class Step(Enum):
    """A request of a transaction, by what it asks for."""

    FIND_COORDINATOR = "finding the coordinator"
    INITIALIZE = "asking for a producer id"
    ADD_PARTITIONS = "adding partitions to the transaction"
    ADD_OFFSETS = "adding a group's offsets to the transaction"
    COMMIT_OFFSETS = "committing offsets in the transaction"
    PRODUCE = "writing records in the transaction"
    COMMIT = "committing the transaction"
    ABORT = "aborting the transaction"


_COMMON = {
    ErrorCode.NONE: Outcome.DONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Outcome.FIND,
    ErrorCode.NOT_COORDINATOR: Outcome.FIND,
    ErrorCode.PRODUCER_FENCED: Outcome.FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: Outcome.FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Outcome.FATAL,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Outcome.FATAL,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Outcome.FATAL,
    ErrorCode.INVALID_TXN_STATE: Outcome.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: Outcome.FATAL,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Outcome.FATAL,
    ErrorCode.UNKNOWN_PRODUCER_ID: Outcome.ABORT,
    ErrorCode.TRANSACTION_ABORTABLE: Outcome.ABORT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.ABORT,
}

_OWN: dict[Step, dict[ErrorCode, Outcome]] = {
    Step.FIND_COORDINATOR: {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Outcome.RETRY,
        ErrorCode.NOT_COORDINATOR: Outcome.RETRY,
    },
    # No transaction is there that could be aborted.
    Step.INITIALIZE: {
        ErrorCode.UNKNOWN_PRODUCER_ID: Outcome.FATAL,
        ErrorCode.TRANSACTION_ABORTABLE: Outcome.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.FATAL,
    },
    Step.ADD_PARTITIONS: {},
    Step.ADD_OFFSETS: {},
    Step.COMMIT_OFFSETS: {ErrorCode.REQUEST_TIMED_OUT: Outcome.FIND},
    Step.PRODUCE: {
        # A leader may lag behind the coordinator, which alone knows who is fenced (KIP-588): the
        # abort tells. Retries happen before this table is asked: these are the codes of a batch
        # that is given up.
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Outcome.ABORT,
        ErrorCode.NOT_COORDINATOR: Outcome.ABORT,
        ErrorCode.INVALID_PRODUCER_EPOCH: Outcome.ABORT,
        ErrorCode.INVALID_TXN_STATE: Outcome.ABORT,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Outcome.ABORT,
    },
    Step.COMMIT: {ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.FATAL},
    # An abort that can't be done can't be aborted.
    Step.ABORT: {
        ErrorCode.UNKNOWN_PRODUCER_ID: Outcome.FATAL,
        ErrorCode.TRANSACTION_ABORTABLE: Outcome.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.FATAL,
    },
}

_OF_OTHERS = {
    Step.FIND_COORDINATOR: Outcome.FATAL,
    Step.INITIALIZE: Outcome.FATAL,
    Step.ADD_PARTITIONS: Outcome.ABORT,
    Step.ADD_OFFSETS: Outcome.FATAL,
    Step.COMMIT_OFFSETS: Outcome.ABORT,
    Step.PRODUCE: Outcome.ABORT,
    Step.COMMIT: Outcome.FATAL,
    Step.ABORT: Outcome.FATAL,
}
"""The outcome of a code that is not named and does not pass by itself."""


def outcome(step: Step, code: ErrorCode) -> Outcome:
    """What a code means at a step."""
    found = _OWN[step].get(code) or _COMMON.get(code)
    if found is not None:
        return found
    if code.retriable and step is not Step.PRODUCE:
        return Outcome.RETRY
    return _OF_OTHERS[step]
