"""The experiment of the Kafka paper: one producer, one consumer, batches of 1 and of 50 messages.

Beside klog: Kafka, two releases of ActiveMQ, RabbitMQ, and the paper's own figures. ``--plot``
writes the tables and the chart of docs/paper.md; ``--plot FILE`` writes the chart alone.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import _activemq, _brokers, _rabbitmq
from benchmarks._brokers import KAFKA, KLOG
from benchmarks._load.generator import Generator
from benchmarks._paper_logs import LogTurn
from benchmarks._paper_page import write_results
from benchmarks._paper_plot import draw
from benchmarks._paper_queues import QueueTurn
from benchmarks._paper_report import rows_of
from benchmarks._paper_runs import Run, figures
from benchmarks._turns import in_turns, progress
from benchmarks.rows import Row
from tests.support.peers import NEWEST_KAFKA, ROOT, PeersMissing, kafka_jars

PAGE = ROOT / "docs" / "paper.md"
CHART = ROOT / "docs" / "images" / "paper.svg"


def run(args: argparse.Namespace) -> list[Row]:
    with Generator() as generator:
        turns, missing = brokers(generator)
        for name in missing:
            progress(f"{name} is missing: `./dev bench paper` says above why")
        sides = in_turns(*turns, warm_ups=0)
    found = figures(run for side in sides for turn in side for run in turn)
    if args.plot is not None:
        draw(found, Path(args.plot or CHART))
    if args.plot == "":
        write_results(PAGE, found, missing)
    return rows_of(found)


def brokers(generator: Generator) -> tuple[list[Callable[[], list[Run]]], list[str]]:
    """The turn of each broker that is on this machine, and the names of the others."""
    turns: list[Callable[[], list[Run]]] = [LogTurn(KLOG, _brokers.klog_broker, generator)]
    missing: list[str] = []
    kafka = f"{KAFKA} {NEWEST_KAFKA}"
    try:
        kafka_jars(NEWEST_KAFKA)
        turns.append(LogTurn(kafka, _brokers.kafka_broker, generator))
    except PeersMissing:
        missing.append(kafka)
    for version in (_activemq.OLDEST_ACTIVEMQ, _activemq.NEWEST_ACTIVEMQ):
        if _activemq.is_installed(version):
            turns.append(QueueTurn(partial(_activemq.ActiveMq, version)))
        else:
            missing.append(f"ActiveMQ {version}")
    if _rabbitmq.is_installed():
        turns.append(QueueTurn(_rabbitmq.RabbitMq))
    else:
        missing.append("RabbitMQ")
    return turns, missing
