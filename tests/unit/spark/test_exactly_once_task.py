"""Parts of a task of the exactly-once sink, without a broker: its identity, the sentences of its
failures, and the producers that a worker keeps."""

from collections.abc import Iterator

import pytest

from pyspark_klog.client.errors import ProducerUnusable, TransactionMustAbort
from pyspark_klog.errors import ErrorCode
from pyspark_klog.spark.options.exactly_once import ExactlyOnce, MicroBatch
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink.dead_letters import TaskIds
from pyspark_klog.spark.sink.exactly_once.attempt import Task, task_of
from pyspark_klog.spark.sink.exactly_once.decisions import CurrentTask
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.sink.exactly_once.names import SinkId
from pyspark_klog.spark.sink.exactly_once.refusals import ended, explained, fenced, timed_out
from pyspark_klog.spark.workers import clients

_RUN = "22222222-2222-2222-2222-222222222221"
_OPTIONS = ExactlyOnce(topic="t")
_TASK = Task(SinkId("team.a", "q", "n"), "t", CurrentTask(3, 7, _RUN))


# --- which task ----------------------------------------------------------------------------------
def test_a_streams_task_has_sparks_ids() -> None:
    task = task_of(_OPTIONS, TaskIds("query", 7, 3, 2, 99), _RUN)
    assert task == Task(SinkId("klog-sink", "query", "sink"), "t", CurrentTask(3, 7, _RUN), 2)
    assert task.transactional_id == "klog-sink.query.sink.3"
    keeps = task_of(_OPTIONS._replace(keep_on_mismatch=True), TaskIds("query", 7), _RUN)
    assert keeps.keep_on_mismatch


def test_a_batch_writes_task_has_the_ids_of_its_options() -> None:
    for micro_batch, is_repeatable in [
        (MicroBatch("q", 7, "r"), True),
        (MicroBatch("u", 0, "u"), False),
    ]:
        task = task_of(_OPTIONS._replace(micro_batch=micro_batch), TaskIds(partition_id=3), None)
        assert task.sink.query_id == micro_batch.query_id
        assert task.now == CurrentTask(3, micro_batch.batch_id, micro_batch.run_id, is_repeatable)


@pytest.mark.parametrize(
    ("ids", "run_id"),
    [
        (TaskIds("query", 7), "a job group of the user's"),
        (TaskIds("query", 7), None),
        (TaskIds("query", None), _RUN),
        (TaskIds(None, 7), _RUN),
    ],
)
def test_a_task_that_spark_does_not_name_is_refused(ids: TaskIds, run_id: str | None) -> None:
    with pytest.raises(ExactlyOnceRefused) as caught:
        task_of(_OPTIONS, ids, run_id)
    assert str(caught.value) == (
        f"option exactlyOnce needs to know the query, and Spark gives query {ids.query_id}, "
        f"micro-batch {ids.batch_id} and run (the job group) {run_id}; expected the ids of a "
        "streaming query"
    )


# --- sentences -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (None, ""),
        (ErrorCode.MESSAGE_TOO_LARGE, ""),
        (
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            "; kafka.transaction.timeout.ms is 5, and the broker's transaction.max.timeout.ms is "
            "less: set the option to that, or raise the broker's",
        ),
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "; this user needs WRITE on transactional ids that begin with team.a.",
        ),
        (
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            "; this user needs READ on groups that begin with team.a.",
        ),
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "; this user needs WRITE on the topics, and READ on t",
        ),
        (
            ErrorCode.UNKNOWN_MEMBER_ID,
            "; a program consumes with this group id, which is the sink's: stop that program",
        ),
    ],
)
def test_a_broken_transaction_is_explained(code: ErrorCode | None, advice: str) -> None:
    for kind in (TransactionMustAbort, ProducerUnusable):
        text = str(explained(kind("why", code, "; do this"), _TASK, 5))
        assert text == f"task 3 of micro-batch 7: why{advice}"


def test_what_no_broker_says() -> None:
    assert str(timed_out(_TASK, 5, 9)) == (
        "task 3 of micro-batch 7: its transaction was open for 9 ms and is aborted; "
        "kafka.transaction.timeout.ms allows 5: give it more (the broker's "
        "transaction.max.timeout.ms bounds it), or let micro-batches be smaller"
    )
    assert str(fenced(_TASK)) == (
        "task 3 of micro-batch 7: another attempt took its transactional id, team.a.q.n.3, and has "
        "not committed: it died, or takes longer than kafka.transaction.timeout.ms"
    )
    batch = _TASK._replace(now=CurrentTask(3, 0, "u", is_repeatable=False))
    assert str(ended(batch)) == (
        "task 3 of a batch write: the batch write has ended without this attempt"
    )


# --- producers that are kept ---------------------------------------------------------------------
@pytest.fixture(autouse=True)
def _own_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("_clients", "_producers", "_held"):
        monkeypatch.setattr(clients, name, {})
    yield


def test_a_worker_keeps_some_producers_and_gives_up_all_of_a_cluster() -> None:
    settings = read_options({"kafka.bootstrap.servers": "h:1"}).client
    other = read_options({"kafka.bootstrap.servers": "h:2"}).client
    first = clients.reused_producer(settings, "0")
    assert clients.reused_producer(settings, "0") is first
    assert clients.reused_producer(other, "0") is not first
    held = [clients.reused_producer(settings, str(number)) for number in range(1, 200)]
    assert len({id(each.producer.memory) for each in (first, *held)}) == 1
    assert clients.reused_producer(settings, "199") is held[-1]
    assert clients.reused_producer(settings, "0") is not first
    assert len(clients._held) == 64
    mine = clients.reused_producer(other, "0")
    clients.drop_producer(settings)
    assert clients.reused_producer(settings, "199") is not held[-1]
    assert clients.reused_producer(other, "0") is mine


def test_a_kept_producer_has_the_time_out_of_the_settings() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "kafka.transaction.timeout.ms": "1234"}
    held = clients.reused_producer(read_options(given).client, "id")
    assert (held.producer.transactional_id, held.committed, held.before) == ("id", None, None)
    held.producer._manager.initialize()
    step = held.producer._manager._steps[0]
    assert step.request.transaction_timeout_ms == 1234  # type: ignore[attr-defined]
