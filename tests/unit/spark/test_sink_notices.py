"""The driver's log lines on what a sink ignores and on record timestamps."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType, TimestampType

from pyspark_klog.client.admin.configs import ConfigEntry, Resource
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.log_fallback import FORMAT, LOGGER, log_notice
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink import notices
from pyspark_klog.spark.sink.notices import log_ignored_timestamps, warn_of_old_records
from pyspark_klog.spark.sink.stream_writer import stream_writer
from pyspark_klog.spark.sink.writer import TaskWritten
from pyspark_klog.spark.workers import plan_memory

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
Settings = dict[str, str] | KlogError


def _options(**options: str) -> Options:
    return read_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **options})


TIMED = _options(timestampColumn="at")


class _Cluster:
    """The settings of topics, as a driver may read them."""

    def __init__(self) -> None:
        self.topics: dict[str, Settings] = {}
        self.asked: list[str] = []
        self.clock_ms = 0

    def now_ms(self) -> int:
        return self.clock_ms

    def describe(
        self, client: object, resource: Resource, *, deadline_ms: int
    ) -> dict[str, ConfigEntry]:
        assert client is self
        self.asked.append(resource.name)
        found = self.topics[resource.name]
        if isinstance(found, KlogError):
            self.clock_ms = deadline_ms
            raise found
        return {name: ConfigEntry(name, value, 5, False, False) for name, value in found.items()}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Cluster]:
    made = _Cluster()
    monkeypatch.setattr(notices, "client_for", lambda settings: made)
    monkeypatch.setattr(notices, "epoch_ms", lambda: NOW_MS)
    monkeypatch.setattr(notices, "_retention_ms", {})
    monkeypatch.setattr("pyspark_klog.client.admin.configs.describe_configs", made.describe)
    yield made


@pytest.fixture(autouse=True)
def _nothing_was_logged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plan_memory, "_logged", set())
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


# --- what a streaming sink ignores ---------------------------------------------------------------
def _commit(batch_id: int, run: str, *, task_count: int = 1) -> None:
    options = _options(**{"kafka.schema.registry.url": "http://h"})
    schema = StructType().add("value", StringType()).add("timestamp", TimestampType())
    task = TaskWritten("query", batch_id, 0, 0, 1, 5, run=run)
    stream_writer(options, schema).commit([task] * task_count, batch_id)


def test_a_query_that_goes_on_from_a_checkpoint_logs_what_its_sink_ignores(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    for batch_id in (7, 8):
        _commit(batch_id, "query/run-2")
    # Spark ends idle Python workers, and a new one commits the next micro-batch.
    monkeypatch.setattr(plan_memory, "_logged", set())
    _commit(9, "query/run-2")
    setting, column = caplog.messages
    assert setting.startswith("setting=kafka.schema.registry.url is accepted without effect")
    assert column.startswith("column timestamp is ignored")
    _commit(10, "query/run-3", task_count=0)
    assert len(caplog.messages) == 2
    _commit(11, "query/run-3")
    assert caplog.messages[2:] == [setting, column]


def test_without_a_local_folder_a_process_logs_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    for batch_id in (0, 1):
        _commit(batch_id, "query/run-1")
    assert len(caplog.messages) == 1


# --- a column that is ignored --------------------------------------------------------------------
@pytest.mark.parity("sink: column timestamp")
def test_an_ignored_column_is_logged_at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_ignored_timestamps(_options(), ["value", "timestamp"])
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "INFO",
            "column timestamp is ignored, as by Spark's own connector, and records get the time of "
            "writing as their timestamp: option timestampColumn=timestamp writes the column's "
            "values",
        )
    ]
    log_ignored_timestamps(_options(), ["value", "at", "Timestamp"])
    log_ignored_timestamps(TIMED, ["value", "at", "timestamp"])
    assert len(caplog.records) == 1


def test_a_notice_is_shown_where_nobody_has_configured_logging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    logger = logging.getLogger(f"{LOGGER}.spark.some")
    monkeypatch.setattr(root, "handlers", [])
    assert FORMAT.startswith("%(asctime)s level=")
    log_notice(logger, "said %d", 1)
    assert "level=INFO logger=pyspark_klog.spark.some said 1" in capsys.readouterr().err
    # A configuration that wants warnings alone gets warnings alone.
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler()])
    log_notice(logger, "said %d", 2)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(logging.getLogger(LOGGER), "level", logging.ERROR)
    log_notice(logger, "said %d", 3)
    assert capsys.readouterr().err == ""


# --- records that retention deletes --------------------------------------------------------------
@pytest.mark.parity("own option: timestampColumn")
def test_records_older_than_the_retention_are_one_warning_with_numbers(
    cluster: _Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topics = {"t": {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS)}}
    of_tasks = [("t", NOW_MS - 8 * DAY_MS), ("t", NOW_MS - 45 * DAY_MS), ("t", NOW_MS)]
    for batch in range(3):
        warn_of_old_records(TIMED, of_tasks, "query/run", f"micro-batch {batch}")
    assert caplog.messages == [
        "the oldest record of micro-batch 0 in topic=t is 45.0 days old by its timestamp "
        "(timestampColumn=at), and the topic keeps records for 7.0 days (retention.ms=604800000): "
        "brokers delete such records soon; raise retention.ms, or leave out timestampColumn"
    ]
    assert cluster.asked == ["t"]
    # Spark ends idle Python workers, and a new one commits the next micro-batch.
    monkeypatch.setattr(notices, "_retention_ms", {})
    monkeypatch.setattr(plan_memory, "_logged", set())
    warn_of_old_records(TIMED, of_tasks, "query/run", "micro-batch 3")
    assert len(caplog.messages) == 1
    warn_of_old_records(TIMED, of_tasks, "query/another run", "micro-batch 4")
    warn_of_old_records(TIMED, of_tasks, None, "the batch")
    warn_of_old_records(TIMED, of_tasks, None, "the batch")
    assert len(caplog.messages) == 4


def test_a_later_micro_batch_may_be_the_first_with_old_records(
    cluster: _Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topics = {"t": {"retention.ms": "3600000"}, "u": {"retention.ms": "7200000"}}
    for age_ms in (0, 59_000, 3_599_999):
        warn_of_old_records(TIMED, [("t", NOW_MS - age_ms), ("u", NOW_MS)], "q", "micro-batch 0")
    assert (caplog.messages, cluster.asked) == ([], ["t"])
    warn_of_old_records(TIMED, [("t", NOW_MS - 5_400_000)], "q", "micro-batch 1")
    (message,) = caplog.messages
    assert "is 1.5 hours old" in message and "for 1.0 hours (retention.ms=3600000)" in message


@pytest.mark.parametrize(
    "settings",
    [
        {"retention.ms": "-1"},
        {"retention.ms": "1000", "cleanup.policy": "compact"},
        {"retention.ms": "1000", "message.timestamp.type": "LogAppendTime"},
        BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no DescribeConfigs"),
        BrokerError(ErrorCode.REQUEST_TIMED_OUT, "busy"),
    ],
)
def test_topics_with_create_time_or_unknown_settings_are_no_warning(
    cluster: _Cluster, caplog: pytest.LogCaptureFixture, settings: Settings
) -> None:
    cluster.topics = {"t": settings}
    for batch in range(2):
        warn_of_old_records(TIMED, [("t", 0)], "query", f"micro-batch {batch}")
    assert (caplog.messages, cluster.asked) == ([], ["t"])


def test_a_broker_that_does_not_answer_is_asked_once_for_all_topics(cluster: _Cluster) -> None:
    busy = BrokerError(ErrorCode.REQUEST_TIMED_OUT, "busy")
    cluster.topics = {"t": busy, "u": busy}
    warn_of_old_records(TIMED, [("t", 0), ("u", 0)], "query", "micro-batch 0")
    assert cluster.asked == ["t"]


def test_a_failure_of_the_comparison_fails_no_batch(cluster: _Cluster) -> None:
    cluster.topics = {"t": {"retention.ms": "a week"}}
    warn_of_old_records(TIMED, [("t", 0)], None, "the batch")
