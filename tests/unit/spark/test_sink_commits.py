"""The driver's commit of the messages of a sink's tasks."""

import logging
import pickle

import pytest

from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink.dead_letters import DeadLettersFailed
from pyspark_klog.spark.sink.writer import TaskWritten, commit_written, log_aborted, write_task

_OPTIONS = {"kafka.bootstrap.servers": "h:1", "topic": "t", "deadLetterTopic": "dead"}


def _messages() -> list[TaskWritten | None]:
    return [
        TaskWritten("q", 4, 0, 0, 10, 100, (("BAD_PARTITION", 2), ("TOO_LARGE", 1))),
        TaskWritten("q", 4, 1, 1, 11, 50, (("TOO_LARGE", 3),)),
        TaskWritten("q", 4, 2, 0, 12, 0),
        None,  # the message of a failed task
    ]


@pytest.mark.parity("beyond: 8 dead letters")
def test_dead_letters_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    commit_written(_messages(), read_options(_OPTIONS), "micro-batch 4")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "WARNING",
            "rows=6 of micro-batch 4 went to topic=dead as dead letters: "
            "BAD_PARTITION 2, TOO_LARGE 4",
        )
    ]


@pytest.mark.parity("own option: deadLetterMax")
def test_all_tasks_together_may_be_too_many() -> None:
    commit_written(_messages(), read_options({**_OPTIONS, "deadLetterMax": "6"}), "the batch")
    with pytest.raises(DeadLettersFailed) as caught:
        commit_written(_messages(), read_options({**_OPTIONS, "deadLetterMax": "5"}), "the batch")
    assert str(caught.value) == (
        "6 rows could not be written, and deadLetterMax is 5: BAD_PARTITION 2, TOO_LARGE 4"
    )


def test_without_dead_letters_the_log_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    commit_written([TaskWritten("q", 4, 0, 0, 10, 100)], read_options(_OPTIONS), "micro-batch 4")
    assert caplog.records == []


def test_a_failure_says_what_stays_written(caplog: pytest.LogCaptureFixture) -> None:
    log_aborted([None], "micro-batch 4")
    assert caplog.records == []
    log_aborted(_messages(), "micro-batch 4")
    assert caplog.messages == [
        "micro-batch 4 failed: rows=150 and dead letters=6 of tasks=3 stay written"
    ]


def test_a_message_crosses_processes_and_names_its_task() -> None:
    message = _messages()[0]
    assert message is not None
    assert pickle.loads(pickle.dumps(message)) == message
    assert (message.query_id, message.batch_id, message.partition_id) == ("q", 4, 0)
    assert (message.attempt_number, message.task_attempt_id) == (0, 10)
    # A task without rows connects to no broker.
    assert write_task(read_options(_OPTIONS), iter(())).row_count == 0
