"""The same logs cleaned by Apache Kafka and by klog: the same records are left, round by round.

klog keeps a batch more here and there (its own last one of a group of segments, maybe emptied), so
records and markers are compared, not batches.
"""

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from klog_broker.cli.commands import command
from tests.support.broker_process import BrokerProcess
from tests.support.compaction import cleaner_input
from tests.support.compaction import cleaner_oracle as oracle
from tests.support.eventually import eventually
from tests.support.kafka.directories import kafkas_dump, log_files
from tests.support.kafka.dump_log_segments import dump
from tests.support.peers import NEWEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.peers

SEEDS = [int(each) for each in os.environ.get("KLOG_CLEANER_SEEDS", "1").split(",")]
"""Other seeds find other faults: KLOG_CLEANER_SEEDS=2,3,4."""
WITH_PRODUCERS = 2
ROUNDS = 4
"""Number of rounds. The first round is written before either broker cleans. From the round
WITH_PRODUCERS on only plain batches come, so that the earlier producers' last batches and then
their markers can be removed."""
_RETIMED = "appended"
"""A topic with append time, so that each broker sets its own timestamps."""
_LOG_TIME = re.compile(r"log timestamp: (-?\d+)")
_STOPPED_MARKER = ".kafka_cleanshutdown"


@dataclass
class Round:
    """A broker's result of a round: how far it cleaned, its files' content, the served records."""

    cleaned_to: dict[str, int]
    files: dict[str, oracle.FileContent]
    served: dict[str, oracle.Served]


@dataclass
class Side:
    """A broker with its own copy of the first round."""

    address: tuple[str, int]
    data: Path
    rounds: list[Round]


@dataclass
class Cleaned:
    """Both brokers have cleaned all rounds, and have stopped."""

    kafka: KafkaServer
    kafkas: Side
    klogs: Side


@pytest.fixture(scope="module", params=SEEDS)
def cleaned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cleaned]:
    folder = tmp_path_factory.mktemp("oracle")
    seed, dirty = request.param, folder / "klog"
    with KafkaServer(NEWEST_KAFKA, properties=cleaner_input.BROKER_SETTINGS) as kafka:
        address = ("127.0.0.1", kafka.port)
        cleaner_input.create_topics(kafka.bootstrap_servers)
        with RawClient(address) as client:
            cleaner_input.Writer(client, seed).write(0)
        _restart(kafka, lambda: shutil.copytree(kafka.log_dir, dirty))
        kafkas = Side(address, kafka.log_dir, [])
        _clean_all(kafkas, seed)
        _stop(kafka)
        with _klog(dirty, adopts=True) as broker:
            with RawClient(broker.address) as client:
                cleaner_input.set_settings(client)
            klogs = Side(broker.address, dirty, [])
            _clean_all(klogs, seed)
        yield Cleaned(kafka, kafkas, klogs)


def _stop(kafka: KafkaServer) -> None:
    """Politely, so that it leaves nothing to be recovered."""
    os.kill(kafka.pid, signal.SIGTERM)
    eventually((kafka.log_dir / _STOPPED_MARKER).exists, 60, what="Kafka's clean shutdown")


def _restart(kafka: KafkaServer, meanwhile: Callable[[], object]) -> None:
    if not (kafka.log_dir / _STOPPED_MARKER).exists():
        _stop(kafka)
    kafka.restart(meanwhile)


@contextmanager
def _klog(data: Path, *, adopts: bool = False, cleans: bool = True) -> Iterator[BrokerProcess]:
    settings = {**cleaner_input.BROKER_SETTINGS, "log.cleaner.enable": str(cleans).lower()}
    with BrokerProcess(data, settings, options=["--adopt"] if adopts else []) as broker:
        yield broker


def _clean_all(side: Side, seed: int) -> None:
    with RawClient(side.address) as client:
        writer = cleaner_input.Writer(client, seed)
        for number in range(ROUNDS):
            if number:
                cleaner_input.set_cleaning(client, cleaner_input.HELD_OFF)
                writer.write(number, with_producers=number < WITH_PRODUCERS)
            cleaner_input.set_cleaning(client, cleaner_input.EAGER)
            ends = oracle.until_cleaned(client, side.data)
            side.rounds.append(Round(ends, _contents(side.data), _served(client)))


def _contents(data: Path) -> dict[str, oracle.FileContent]:
    found = {name: oracle.content(data / f"{name}-0") for name in cleaner_input.TOPICS}
    found[_RETIMED].rows = _without_times(found[_RETIMED].rows)
    for each in found.values():
        # Brokers give producers ids of their own.
        each.markers = [(offset, 0, 0, kind) for offset, _, _, kind in each.markers]
    return found


def _served(client: RawClient) -> dict[str, oracle.Served]:
    found = {name: oracle.served(client, name, last_epoch=0) for name in cleaner_input.TOPICS}
    retimed = found[_RETIMED]
    found[_RETIMED] = replace(
        retimed,
        rows=tuple(map(_without_times, retimed.rows)),  # type: ignore[arg-type]
        offsets={asked: found for asked, found in retimed.offsets.items() if asked[1] in (-1, -2)},
    )
    return found


def _without_times(rows: list[oracle.Row]) -> list[oracle.Row]:
    return [(offset, 0, *rest) for offset, _, *rest in rows]  # type: ignore[misc]


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("topic", list(cleaner_input.TOPICS))
def test_both_leave_the_same(cleaned: Cleaned, topic: str, number: int) -> None:
    ours, theirs = cleaned.klogs.rounds[number], cleaned.kafkas.rounds[number]
    assert ours.cleaned_to[topic] == theirs.cleaned_to[topic]
    assert ours.files[topic].rows == theirs.files[topic].rows
    assert ours.files[topic].markers == theirs.files[topic].markers
    assert ours.served[topic].rows == theirs.served[topic].rows
    assert ours.served[topic].offsets == theirs.served[topic].offsets


def test_the_input_had_something_to_clean(cleaned: Cleaned) -> None:
    """Each round drops records; where nothing is kept longer tombstones and markers go, too."""
    of_kept, of_gone = (
        [each.files[name] for each in cleaned.kafkas.rounds] for name in ("kept", "gone")
    )
    end = cleaned.kafkas.rounds[-1].cleaned_to["gone"]
    assert len(of_gone[-1].rows) < end // 4
    tombstones = [[row for row in each.rows if row[3] is None] for each in (*of_kept, *of_gone)]
    assert len(tombstones[ROUNDS - 1]) > len(tombstones[-1])
    assert len(of_kept[-1].markers) > len(of_gone[-1].markers)


def test_kafkas_tool_takes_klogs_files(cleaned: Cleaned) -> None:
    for name in cleaner_input.TOPICS:
        files = log_files(cleaned.klogs.data / f"{name}-0")
        times = [path for path in files if path.suffix == ".timeindex"]
        dump(NEWEST_KAFKA, [path for path in files if path not in times], "--deep-iteration")
        # The tool looks for a row's time in the batch's records, which may be empty by now.
        said = _LOG_TIME.findall(kafkas_dump(NEWEST_KAFKA, times))
        assert set(said) <= {"-1"}, said
    result = CliRunner().invoke(command, ["verify", str(cleaned.klogs.data)])
    assert result.exit_code == 0, result.output


def test_each_serves_what_the_other_cleaned(cleaned: Cleaned, tmp_path: Path) -> None:
    kafka, copy = cleaned.kafka, tmp_path / "kafkas"
    shutil.copytree(cleaned.kafkas.data, copy)
    with (
        _klog(copy, adopts=True, cleans=False) as broker,
        RawClient(broker.address) as client,
    ):
        for name, found in _served(client).items():
            expected = cleaned.kafkas.rounds[-1].served[name]
            assert (found.rows, found.offsets) == (expected.rows, expected.offsets), name

    def swap() -> None:
        for name in cleaner_input.TOPICS:
            shutil.rmtree(kafka.log_dir / f"{name}-0")
            shutil.copytree(cleaned.klogs.data / f"{name}-0", kafka.log_dir / f"{name}-0")

    _restart(kafka, swap)
    with RawClient(("127.0.0.1", kafka.port)) as client:
        for name, found in _served(client).items():
            expected = cleaned.klogs.rounds[-1].served[name]
            assert (found.rows, found.offsets) == (expected.rows, expected.offsets), name
