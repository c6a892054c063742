"""The outcome of each error code at each step of a transaction, as one table. Pure.

The table follows Kafka 4.3's TransactionManager, with one difference: if the group coordinator
refuses a commit of offsets for its contents (too large, a topic without permission), only the
transaction must be aborted and the producer stays usable.
"""

from enum import Enum, auto

from pyspark_klog.errors import ErrorCode


class Outcome(Enum):
    """How a response is handled. If a response has several error codes, the one whose outcome is
    last in this class counts."""

    DONE = auto()
    RETRY = auto()
    FIND = auto()
    """Another broker may be the coordinator now: find the coordinator, then retry."""
    ABORT = auto()
    FATAL = auto()
    FENCED = auto()
    """The producer becomes unusable, as with FATAL: a newer producer has its transactional id, or
    the coordinator has raised the epoch when it aborted a transaction that took too long."""


class Step(Enum):
    """The kinds of requests of a transaction, each with its description for error messages."""

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
    # At this step (InitProducerId) there is no transaction to abort. So these errors, which at most
    # other steps cause an abort of the transaction, make the producer unusable.
    Step.INITIALIZE: {
        ErrorCode.UNKNOWN_PRODUCER_ID: Outcome.FATAL,
        ErrorCode.TRANSACTION_ABORTABLE: Outcome.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.FATAL,
    },
    Step.ADD_PARTITIONS: {},
    Step.ADD_OFFSETS: {},
    Step.COMMIT_OFFSETS: {ErrorCode.REQUEST_TIMED_OUT: Outcome.FIND},
    Step.PRODUCE: {
        # These codes abort only the transaction. A partition leader may lag behind the transaction
        # coordinator, and only the coordinator knows whether the producer is fenced (KIP-588): its
        # response to the abort will show this. The producer retries a batch before it consults this
        # table, so a retriable code belongs to a batch that the producer has given up.
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Outcome.ABORT,
        ErrorCode.NOT_COORDINATOR: Outcome.ABORT,
        ErrorCode.INVALID_PRODUCER_EPOCH: Outcome.ABORT,
        ErrorCode.INVALID_TXN_STATE: Outcome.ABORT,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Outcome.ABORT,
    },
    Step.COMMIT: {ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.FATAL},
    # If an abort fails, another abort does not help, so these errors are fatal.
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
"""By step: the outcome of all other error codes, which the tables above (`_COMMON` for all steps,
`_OWN` by step) do not list. A retriable code leads to RETRY instead, except at PRODUCE."""


def outcome(step: Step, code: ErrorCode) -> Outcome:
    """The outcome of ``code`` in the response to ``step``."""
    found = _OWN[step].get(code) or _COMMON.get(code)
    if found is not None:
        return found
    if code.retriable and step is not Step.PRODUCE:
        return Outcome.RETRY
    return _OF_OTHERS[step]
