"""The paper's experiment: how long runs last, its goals, tables, rows and chart."""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as bench
from benchmarks import _activemq, _rabbitmq
from benchmarks._load.jobs import Measured
from benchmarks._paper_logs import GENERATOR, LIBRDKAFKA
from benchmarks._paper_page import results, write_results
from benchmarks._paper_plot import draw
from benchmarks._paper_queues import QueueTurn
from benchmarks._paper_report import rows_of
from benchmarks._paper_runs import (
    BATCHES_OF_1,
    BATCHES_OF_50,
    CONSUMING,
    Figure,
    Run,
    Subject,
    figures,
    measure,
)
from benchmarks._queue_broker import QueueBroker
from benchmarks.paper import brokers
from tests.support.peers import ROOT

KLOG_50 = Subject("klog", GENERATOR, BATCHES_OF_50, 0)


@pytest.fixture(autouse=True)
def full_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KLOG_BENCH_SIZE", raising=False)
    monkeypatch.delenv("KLOG_BENCH_TURNS", raising=False)


def measured(messages: int, per_second: float) -> Measured:
    return Measured(messages / per_second, 1.0, 2.0, messages, messages, 0)


def at_rate(per_second: float, asked: list[int]) -> Callable[[int], Run]:
    def run(messages: int) -> Run:
        asked.append(messages)
        return Run(KLOG_50, measured(messages, per_second))

    return run


@pytest.mark.parametrize(
    ("per_second", "messages"),
    [(300_000, 10_000_000), (100_000, 10_000_000), (99_990, 5_999_400), (24_321, 1_459_260)],
)
def test_a_broker_below_100_000_messages_a_second_runs_for_60_s(
    per_second: float, messages: int
) -> None:
    asked: list[int] = []
    run = measure(at_rate(per_second, asked), uncounted=1_000)
    assert asked == [1_000, 1_000, messages]
    assert run.measured.records == messages


def test_a_fast_broker_writes_all_messages_once_before_they_count() -> None:
    asked: list[int] = []
    measure(at_rate(2_000_000, asked), uncounted=1_000)
    assert asked == [1_000, 1_000, 10_000_000, 10_000_000]


def test_messages_are_whole_batches_and_follow_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setenv("KLOG_BENCH_SIZE", "0.5")
    measure(at_rate(1_001, asked), uncounted=1_000, batch=50)
    assert asked == [1_000, 1_000, 30_000]  # 30,030 are not whole batches


def test_a_figure_is_the_median_of_its_runs_and_says_if_they_were_short() -> None:
    slow = Subject("RabbitMQ", "PerfTest", BATCHES_OF_1)
    runs = [
        Run(KLOG_50, measured(10_000_000, rate), overhead_bytes=rate) for rate in (1e6, 4e6, 2e6)
    ]
    runs += [Run(slow, measured(1_200_000, 20_000))]
    klog, rabbitmq = figures(runs)
    assert (klog.subject, klog.per_second, klog.seconds) == (KLOG_50, 2e6, 5.0)
    assert (klog.overhead_bytes, klog.is_short) == (2e6, False)
    assert (rabbitmq.seconds, rabbitmq.is_short) == (60.0, True)
    assert rabbitmq.broker_cores == 2.0 / 60


def some_figures(klog_factor: float = 1.0) -> list[Figure]:
    """klog, Kafka and two brokers with queues; RabbitMQ sends and ActiveMQ receives faster."""
    found: list[Figure] = []
    for broker, factor in (("klog", klog_factor), ("Kafka 4", 0.01)):
        for client in (GENERATOR, LIBRDKAFKA):
            for work, rate in ((BATCHES_OF_1, 1e6), (BATCHES_OF_50, 3e6)):
                subject = Subject(broker, client, work, 1)
                found.append(Figure(subject, rate * factor, 5.0, 0.5, 1.0, overhead_bytes=10.0))
            found.append(Figure(Subject(broker, client, CONSUMING), 5e5 * factor, 9.0, 0.5, 1.0))
    for broker, sent, received in (("ActiveMQ 5", 10_000, 20_000), ("RabbitMQ 3", 20_000, 10_000)):
        sending = Subject(broker, f"client of {broker}", BATCHES_OF_1)
        found.append(Figure(sending, sent, 60.0, 0.5, 1.0, 144.0, is_short=True))
        receiving = Subject(broker, f"client of {broker}", CONSUMING)
        found.append(Figure(receiving, received, 60.0, 0.5, 1.0, is_short=True))
    return found


@pytest.mark.parametrize(("klog_factor", "reached"), [(1.0, True), (2.0, True), (0.9, False)])
def test_goals_are_against_the_faster_broker_with_queues(klog_factor: float, reached: bool) -> None:
    goals = [row for row in rows_of(some_figures(klog_factor)) if row.bar is not None]
    assert [(row.peer, row.bar, row.reached) for row in goals] == [
        (20_000, 50.0, reached),
        (20_000, 150.0, reached),  # no batches of 50: the figure of batches of 1
        (20_000, 50.0, klog_factor >= 2),
    ]
    assert "RabbitMQ 3" in goals[0].work
    assert "ActiveMQ 5" in goals[2].work
    assert "the peer ran for 60 s" in goals[0].note


def test_klog_stands_beside_kafka_the_paper_and_librdkafka() -> None:
    rows = {row.work: row for row in rows_of(some_figures())}
    kafka = rows[f"{BATCHES_OF_1}, acks=1, {GENERATOR}; Kafka 4"]
    assert (kafka.klog, kafka.peer, kafka.bar) == (1e6, 1e4, None)
    assert "client 0.50 / 0.50, broker 1.00 / 1.00" in kafka.note
    share = rows[f"{CONSUMING}, {LIBRDKAFKA}; Kafka 4"]
    assert (share.klog, share.peer) == (5e5, 5e3)
    paper = {work: row.peer for work, row in rows.items() if "in the paper" in work}
    assert list(paper.values()) == [50_000, 400_000, 22_000, 9, 9]
    overhead = rows[f"overhead, {BATCHES_OF_1}; ActiveMQ 5"]
    assert (overhead.klog, overhead.peer, overhead.unit) == (10, 144, "bytes/msg")
    assert not [work for work in rows if LIBRDKAFKA in work and "RabbitMQ" in work]


def test_the_tables_name_clients_times_and_missing_brokers() -> None:
    text = results(some_figures(), ["ActiveMQ 6"])
    assert "medians of 3 turns.\n" in text
    assert "Missing on this machine: ActiveMQ 6." in text
    assert "](images/paper.svg)\n" in text
    goal = f"| {BATCHES_OF_1}, acks=1: >= 50x | 1,000,000 | RabbitMQ 3: 20,000 (60 s) "
    assert f"{goal}| 50x (reached) |" in text
    assert "| klog | load generator | 1 | 1,000,000 | 3,000,000 |" in text
    assert "| RabbitMQ 3 | client of RabbitMQ 3 | not awaited | 20,000 (60 s) | has none |" in text
    assert "| Kafka in the paper | own client, 2011 | 0 | 50,000 | 400,000 |" in text
    assert "| ActiveMQ 5 | client of ActiveMQ 5 | 20,000 (60 s) |" in text
    assert "| ActiveMQ 5 | 144.0 |  |" in text


def test_a_quick_look_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLOG_BENCH_SIZE", "0.02")
    monkeypatch.setenv("KLOG_BENCH_TURNS", "1")
    assert "one turn, with 0.02 of the messages: a quick look only." in results(some_figures(), [])


def test_only_the_results_of_the_page_are_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# The paper\n\ntext\n\n## Results\n\nold\n", encoding="utf-8")
    for _ in range(2):
        write_results(page, some_figures(), [])
        text = page.read_text(encoding="utf-8")
        assert text.startswith("# The paper\n\ntext\n\n## Results\n\nMeasured on ")
        assert text.count("| goal |") == 1
        assert "old" not in text


def test_the_chart_has_a_bar_for_each_figure_and_marks_short_runs(tmp_path: Path) -> None:
    draw(some_figures(), tmp_path / "new" / "chart.svg")
    text = (tmp_path / "new" / "chart.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    shown = [each.text or "" for each in ElementTree.fromstring(text).iter() if each.text]
    assert sum("RabbitMQ 3, client of RabbitMQ 3" in each for each in shown) == 3
    assert sum("Kafka in the paper" in each for each in shown) == 3
    assert [each.strip() for each in shown].count("20,000") == 3
    assert [each for each in shown if each.startswith("ran for 60 s, because")]
    assert text.count("url(#h") == 7  # hatched: two brokers in three panels, and the legend
    draw(some_figures(), tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == text
    draw(some_figures(), tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


class _Queue(QueueBroker):
    """A broker in memory; ``sent`` and ``received`` are the numbers of messages of each call."""

    def __init__(self, receives: float) -> None:
        super().__init__("a broker", "a client")
        self._receives = receives
        self.sent: list[int] = []
        self.received: list[int] = []

    def __enter__(self) -> "_Queue":
        return self

    def disk_bytes(self) -> int:
        return sum(self.sent) * 344

    def send(self, queue: str, messages: int, value_bytes: int) -> Measured:
        self.sent.append(messages)
        return measured(messages, 10_000)

    def receive(self, queue: str, messages: int, prefetch: int) -> Measured:
        self.received.append(messages)
        return measured(messages, self._receives)


def test_a_queue_that_is_read_faster_than_written_is_filled_for_60_s_of_reading() -> None:
    broker = _Queue(receives=20_000)
    sent, received = QueueTurn(lambda: broker)()
    assert broker.sent == [50_000, 50_000, 600_000, 50_000, 600_000]
    assert broker.received == [100_000, 50_000, 1_200_000]
    assert (sent.measured.seconds, received.measured.seconds) == (60.0, 60.0)
    assert (sent.overhead_bytes, received.overhead_bytes) == (144.0, None)


def test_a_queue_is_read_to_its_end() -> None:
    broker = _Queue(receives=5_000)
    QueueTurn(lambda: broker)()
    assert sum(broker.received) == sum(broker.sent)
    assert broker.received[-1] == 600_000  # 60 s of sending


def test_missing_brokers_are_named_and_klog_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLOG_PEERS_DIR", str(tmp_path))
    turns, missing = brokers(None)
    assert len(turns) == 1
    assert missing == ["Kafka 4.3.1", "ActiveMQ 5.4.3", "ActiveMQ 6.3.1", "RabbitMQ"]


def test_the_script_fetches_the_releases_that_the_benchmark_starts() -> None:
    script = (ROOT / "dev").read_text(encoding="utf-8")
    releases = f"{_activemq.OLDEST_ACTIVEMQ} {_activemq.NEWEST_ACTIVEMQ}"
    assert f"\nactivemq_versions='{releases}'" in script
    assert f"\nperf_test_version={_rabbitmq.PERF_TEST_VERSION} " in script


def test_a_plot_needs_no_file() -> None:
    assert bench.parse(["paper"]).plot is None
    assert bench.parse(["paper", "--plot"]).plot == ""
    assert bench.parse(["paper", "--plot", "a.png"]).plot == "a.png"
