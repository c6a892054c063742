"""The errors for a failed transaction of a task, as sentences for users. Pure."""

from pyspark_klog.client.errors import ProducerUnusable, TransactionMustAbort
from pyspark_klog.errors import ErrorCode
from pyspark_klog.spark.sink.exactly_once.attempt import Task
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused

_MEMBERS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.NON_EMPTY_GROUP,
)


def explained(
    error: TransactionMustAbort | ProducerUnusable, task: Task, timeout_ms: int
) -> ExactlyOnceRefused:
    """The error for a transaction that has to be aborted, or for a producer that cannot be used any
    more; for some error codes with advice for the user."""
    return ExactlyOnceRefused(f"{_of(task)}: {error.reason}{_advice(error, task, timeout_ms)}")


def timed_out(task: Task, timeout_ms: int, elapsed_ms: int) -> ExactlyOnceRefused:
    """The error for a transaction that took too long, so that its coordinator has aborted it."""
    return ExactlyOnceRefused(
        f"{_of(task)}: its transaction was open for {elapsed_ms} ms and is aborted; "
        f"kafka.transaction.timeout.ms allows {timeout_ms}: give it more (the broker's "
        "transaction.max.timeout.ms bounds it), or let micro-batches be smaller"
    )


def fenced(task: Task) -> ExactlyOnceRefused:
    """The error for an attempt whose transactional id was taken by another attempt of the task,
    which has not committed in time."""
    return ExactlyOnceRefused(
        f"{_of(task)}: another attempt took its transactional id, {task.transactional_id}, and has "
        "not committed: it died, or takes longer than kafka.transaction.timeout.ms"
    )


def left_open(task: Task, topic: str, partition: int, offset: int) -> ExactlyOnceRefused:
    """The error for a partition that still has an open transaction, although the transaction's
    coordinator takes the transaction for ended."""
    return ExactlyOnceRefused(
        f"{_of(task)}: {topic}-{partition} has an open transaction of {task.transactional_id}, "
        f"since offset {offset}, which its coordinator takes for ended: committing now would "
        "commit those rows, too. Apache Kafka forgets to end transactions in partitions that have "
        "no leader then (docs/exactly-once.md, Limits). Abort it (kafka-transactions.sh abort "
        f"--topic {topic} --partition {partition} --start-offset {offset}), then start the query "
        "again"
    )


def ended(task: Task) -> ExactlyOnceRefused:
    """The error for a speculative copy of a task that takes its transactional id only after the
    batch write has ended."""
    return ExactlyOnceRefused(f"{_of(task)}: the batch write has ended without this attempt")


def _of(task: Task) -> str:
    if not task.now.is_repeatable:
        return f"task {task.now.task} of a batch write"
    return f"task {task.now.task} of micro-batch {task.now.batch_id}"


def _advice(error: TransactionMustAbort | ProducerUnusable, task: Task, timeout_ms: int) -> str:
    code = error.code
    begin = f"{task.sink.prefix}."
    if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"; kafka.transaction.timeout.ms is {timeout_ms}, and the broker's "
            "transaction.max.timeout.ms is less: set the option to that, or raise the broker's"
        )
    if code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return f"; this user needs WRITE on transactional ids that begin with {begin}"
    if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return f"; this user needs READ on groups that begin with {begin}"
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"; this user needs WRITE on the topics, and READ on {task.topic}"
    if code in _MEMBERS:
        return "; a program consumes with this group id, which is the sink's: stop that program"
    return ""
