"""The driver's side of the exactly-once sink without brokers: its table, and their responses."""

from collections.abc import Callable
from typing import Any

import pytest

from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark
from pyspark_klog.client.admin.topics import Admin, ConfigEntry
from pyspark_klog.client.cluster.metadata import ClusterView
from pyspark_klog.client.errors import ProducerFenced, UnsupportedByBroker
from pyspark_klog.client.transactions.producer import OpenTransaction
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.exactly_once import ExactlyOnce, MicroBatch
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink.exactly_once import commit, micro_batches, sink_groups
from pyspark_klog.spark.sink.exactly_once.decisions_of_commit import (
    DAY_MS,
    CommitSteps,
    MicroBatchResults,
    Refuse,
    Seen,
    decide_commit,
    ended_by_themselves,
)
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.sink.exactly_once.names import SinkId
from pyspark_klog.spark.sink.exactly_once.progress import TaskProgress

NOW_MS = 100 * DAY_MS
SINK = SinkId("p", "q", "n")


def _row(batch_id: int, run_id: str = "r", age_ms: int = 0) -> ProgressRow:
    return ProgressRow(batch_id, run_id, 1, 1, 7, NOW_MS - age_ms)


def _task(
    index: int, batch_id: int, before: ProgressRow | None = None, *, is_open: bool = True
) -> TaskProgress:
    opened = OpenTransaction(SINK.task(index), 1, 0, 2) if is_open else None
    return TaskProgress(SINK.task(index), "t", _row(batch_id), before, opened, "r")


def _seen(**given: Any) -> Seen:
    start: dict[str, Any] = {"rows": {}, "elsewhere": {}, "mark": None, "now_ms": NOW_MS}
    start |= {"open_ids": frozenset(range(9)), "retention_ms": 7 * DAY_MS}
    return Seen(**{**start, **given})


def _decide(batch_id: int, *tasks: TaskProgress, **seen: Any) -> Refuse | CommitSteps:
    batch = MicroBatchResults("q.n", batch_id, "r", dict(enumerate(tasks)))
    return decide_commit(batch, _seen(**seen), continue_on_missing=False)


def test_transactions_are_ended_in_the_order_of_their_tasks_after_the_mark() -> None:
    tasks = [_task(index, 0) for index in range(12)]
    found = _decide(0, *tasks, open_ids=frozenset(range(12)))
    assert isinstance(found, CommitSteps)
    assert [each.transactional_id for each in found.end] == [SINK.task(n) for n in range(12)]
    assert found.mark == RunMark(0, "r", NOW_MS)
    mark = RunMark(0, "r", 5)
    found = _decide(1, _task(0, 1, _row(0)), rows={0: _row(0)}, mark=mark)
    assert isinstance(found, CommitSteps) and found.mark is None


def test_a_mark_of_the_same_batch_keeps_its_time() -> None:
    """The time says since when rows of the batch may have been committed."""
    old = RunMark(0, "before", NOW_MS - DAY_MS)
    found = _decide(0, _task(0, 0), mark=old)
    assert isinstance(found, CommitSteps)
    assert found.mark == RunMark(0, "r", old.time_ms, ("before",))


@pytest.mark.parametrize(
    ("age_ms", "retention_ms", "is_known"),
    [
        (6 * DAY_MS - 1, 7 * DAY_MS, True),
        (6 * DAY_MS, 7 * DAY_MS, False),
        # A day's reserve would leave nothing.
        (DAY_MS // 2 - 1, DAY_MS, True),
        (DAY_MS // 2, DAY_MS, False),
    ],
)
def test_how_old_task_0s_row_may_be(age_ms: int, retention_ms: int, is_known: bool) -> None:
    first = _row(6, "before", age_ms)
    tasks = _task(0, 7, first), _task(1, 7)
    found = _decide(7, *tasks, rows={0: first}, retention_ms=retention_ms)
    assert isinstance(found, CommitSteps) is is_known


def test_a_batch_that_this_run_has_passed_needs_no_rows() -> None:
    assert isinstance(_decide(7, _task(0, 7), mark=RunMark(6, "r", 0)), CommitSteps)
    # The mark of this very batch says nothing of whether it was ended.
    assert isinstance(_decide(7, _task(0, 7), mark=RunMark(7, "r", NOW_MS)), Refuse)
    assert isinstance(_decide(7, _task(0, 7), mark=RunMark(6, "x", NOW_MS)), Refuse)


def test_what_needs_no_broker() -> None:
    before = _row(3)
    own = _task(0, 4, before, is_open=False)
    assert ended_by_themselves([own, _task(1, 4, _row(1), is_open=False)])
    assert not ended_by_themselves([own, _task(1, 4, before)])
    for other in (_row(4), _row(3, "x"), None):
        assert not ended_by_themselves([own, _task(1, 4, other, is_open=False)])


# --- brokers that refuse -------------------------------------------------------------------------
class _Client:
    """The part of a client that the code under test uses."""

    settings = read_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}).client

    def refresh(self, _: object) -> ClusterView:
        view = ClusterView()
        view.brokers[3] = None  # type: ignore[assignment]
        return view


def _groups() -> sink_groups.SinkGroups:
    return sink_groups.SinkGroups(_Client(), SINK, "t")  # type: ignore[arg-type]


def test_older_brokers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise UnsupportedByBroker("LIST_TRANSACTIONS is not spoken")

    monkeypatch.setattr(sink_groups, "list_transactions", refuse)
    text = "needs brokers of Kafka 3.0 or newer.*LIST_TRANSACTIONS is not spoken"
    with pytest.raises(ExactlyOnceRefused, match=text):
        _groups().listed()


@pytest.mark.parametrize(
    ("entries", "expected_ms"),
    [({"offsets.retention.minutes": "1440"}, DAY_MS), ({}, 7 * DAY_MS)],
)
def test_the_retention_is_the_brokers(
    monkeypatch: pytest.MonkeyPatch, entries: dict[str, str], expected_ms: int
) -> None:
    found = {name: ConfigEntry(name, value, 4, True, False) for name, value in entries.items()}
    monkeypatch.setattr(Admin, "describe_configs", lambda _, broker_id: found)
    assert _groups().retention_ms() == expected_ms


def test_without_permission_the_retention_is_kafkas_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(code: ErrorCode) -> Callable[..., None]:
        def describe(_: object, broker_id: int) -> None:
            raise BrokerError(code, f"describe the settings of {broker_id}")

        return describe

    not_allowed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    monkeypatch.setattr(Admin, "describe_configs", refuse(not_allowed))
    assert _groups().retention_ms() == 7 * DAY_MS
    monkeypatch.setattr(Admin, "describe_configs", refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
    with pytest.raises(BrokerError):
        _groups().retention_ms()


def test_after_an_end_that_fails_none_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch fails, and its repetition finds the rows of the first one."""
    ended: list[str] = []

    def end_transaction(_: object, opened: OpenTransaction, *, commit: bool) -> None:
        assert commit
        if len(ended) == 1:
            raise ProducerFenced("fenced")
        ended.append(opened.transactional_id)

    stored: list[RunMark] = []
    monkeypatch.setattr(commit, "client_for", lambda _: _Client())
    monkeypatch.setattr(commit, "_look", lambda *_: _seen())
    monkeypatch.setattr(commit, "end_transaction", end_transaction)
    monkeypatch.setattr(sink_groups.SinkGroups, "store", lambda _, mark: stored.append(mark))
    tasks = [_task(index, 0) for index in range(3)]
    text = "1 of 3 transactions of tasks were committed, and committing the next one failed: fenced"
    with pytest.raises(KlogError, match=text):
        commit.commit_batch(_Client.settings, ExactlyOnce(), 0, tasks)
    assert ended == [SINK.task(0)]
    assert len(stored) == 1


def test_tasks_that_do_not_belong_together_are_refused() -> None:
    for tasks in ([_task(0, 0), _task(2, 0)], [_task(0, 0), _task(0, 0)]):
        with pytest.raises(ExactlyOnceRefused, match="this is a bug of klog"):
            commit.commit_batch(_Client.settings, ExactlyOnce(), 0, tasks)


def test_abort_never_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise KlogError("no broker")

    monkeypatch.setattr(commit, "client_for", fail)
    commit.abort_batch(_Client.settings, [_task(0, 0)])
    assert (
        "could not be aborted stay open until the query's next run or their timeout: no"
        in caplog.text
    )
    own = ExactlyOnce(topic="t", micro_batch=MicroBatch.of_batch_write("uuid"))
    commit.end_batch_write(_Client.settings, own, [])
    assert "groups klog-sink.uuid.sink.* stay until their progress rows expire" in caplog.text


# --- runs of foreachBatch ------------------------------------------------------------------------
RUN = "22222222-2222-2222-2222-22222222222"


def _ids(name: str, *calls: tuple[str, int]) -> list[str]:
    options = ExactlyOnce(name=name)
    return [micro_batches._run_id(options, "q", group, batch) for group, batch in calls]


def test_a_batch_that_is_written_again_begins_a_run() -> None:
    """The runs after it keep the new name: the old one was past its first batch."""
    one, two = RUN + "1", RUN + "2"
    found = _ids("a", (one, 0), (one, 1), (one, 1), (one, 2), (one, 1), (one, 2), (two, 2))
    assert found == [one, one, f"{one}+1", f"{one}+1", f"{one}+2", f"{one}+3", two]
    assert _ids("b", (one, 0)) == [one]


def test_without_a_run_of_sparks_the_process_is_one() -> None:
    first, second, third = _ids("connect", ("", 0), ("", 1), ("", 1))
    assert first == second != third
    assert " " not in first and "." not in first


def test_spark_connect_does_not_name_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.utils.is_remote", lambda: True)
    frame: Any = None
    with pytest.raises(OptionError, match="Connect does not give: set option exactlyOnceQuery"):
        micro_batches.micro_batch_of(ExactlyOnce(), frame, 3)
    found = micro_batches.micro_batch_of(ExactlyOnce(query="mine"), frame, 3)
    assert found[:2] == ("mine", 3) and not found.is_batch_write


def test_a_job_group_of_the_users_begins_a_run_with_each_batch() -> None:
    assert len(set(_ids("custom", ("mine", 0), ("mine", 1), ("mine", 2)))) == 3
