"""Sends the generated cases to both Kafkas and klog, and lists where klog differs.

``python -m tests.support.oracle.run --seed S --request N`` sends request N of a seed alone
and prints all responses.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark_klog.protocol.keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.oracle.cases import Plan
from tests.support.oracle.differences import Found, Responses, differences, row_for
from tests.support.oracle.player import Player
from tests.support.oracle.requests import BASES
from tests.support.oracle.row import Row
from tests.support.oracle.row_cases import NUMBERS, row_case
from tests.support.oracle.state import SETTINGS
from tests.support.oracle.steps import Case
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer

_KAFKA_4_PRODUCE = 3
"""Kafka 4 says that it serves Produce 0 to 2, for librdkafka's sake (KIP-896), and does not."""


@dataclass(frozen=True)
class Played:
    """A case and the responses of all three; None for a Kafka that lacks the version."""

    case: Case
    oldest: Responses | None
    newest: Responses | None
    klog: Responses
    setup: tuple[Responses, ...]
    """The earlier responses of each broker; for a reader only."""

    def describe(self) -> str:
        """The case, what was answered before it, and the differences that no row allows."""
        lines = [self.case.describe()]
        lines += [f"  answered before: {responses}" for responses in self.setup]
        return "\n".join([*lines, *(f"  {each}" for each in self.unexplained())])

    def unexplained(self) -> list[Found]:
        """The differences that no row allows."""
        return [each for each in self._differences() if row_for(each) is None]

    def rows(self) -> set[Row]:
        """The rows that allow differences of this case."""
        rows = {row_for(each) for each in self._differences()}
        return {each for each in rows if each is not None}

    def _differences(self) -> list[Found]:
        return differences(self.case, self.oldest, self.newest, self.klog)


class Oracle:
    """The three brokers, in the order of `Played`, and the plan of a seed."""

    def __init__(self, addresses: Sequence[tuple[str, int]], seed: int) -> None:
        self._players = [Player(address) for address in addresses]
        served = [each.versions() for each in self._players]
        oldest, newest, klog = served
        produce = newest[ApiKey.PRODUCE]
        newest[ApiKey.PRODUCE] = range(_KAFKA_4_PRODUCE, produce.stop)
        self._served = served
        versions = {
            key: tuple(
                version
                for version in klog[key]
                if version in oldest.get(key, ()) or version in newest.get(key, ())
            )
            for key in BASES
        }
        self.plan = Plan(seed, versions)

    def close(self) -> None:
        """End all connections."""
        for player in self._players:
            player.close()

    def play(self, numbers: Iterable[int]) -> list[Played]:
        """Prepare all brokers, send them the requests with these numbers, and collect."""
        cases = [
            row_case(number) if number in NUMBERS else self.plan.case(number) for number in numbers
        ]
        with ThreadPoolExecutor(len(self._players)) as pool:
            oldest, newest, klog = pool.map(
                lambda index: self._play_on(index, cases), range(len(self._players))
            )
        found = []
        for case in cases:
            number = case.number
            by_klog = klog[number]
            answered = [each[number] for each in (oldest, newest, klog) if number in each]
            sides = [each[number][1] if number in each else None for each in (oldest, newest)]
            found.append(
                Played(case, sides[0], sides[1], by_klog[1], tuple(each[0] for each in answered))
            )
        return found

    def _play_on(self, index: int, cases: Sequence[Case]) -> dict[int, tuple[Responses, Responses]]:
        """Return `Player.play`'s results, by number, for the cases that this broker serves."""
        player, served = self._players[index], self._served[index]
        able = [case for case in cases if case.version in served.get(case.request.api_key, ())]
        player.prepare()
        player.create([topic for case in able for topic in case.topics])
        return dict(zip((case.number for case in able), player.play(able), strict=True))


@contextmanager
def oracle(seed: int, folder: Path) -> Iterator[Oracle]:
    """All three brokers, new and running."""
    with ExitStack() as stack:
        klog = stack.enter_context(BrokerProcess(folder / "data", SETTINGS))
        kafkas = [
            KafkaServer(version, properties=SETTINGS) for version in (OLDEST_KAFKA, NEWEST_KAFKA)
        ]
        with ThreadPoolExecutor(len(kafkas)) as pool:
            for kafka in pool.map(KafkaServer.__enter__, kafkas):
                stack.callback(kafka.stop)
        ports = [("127.0.0.1", kafka.port) for kafka in kafkas]
        made = Oracle([*ports, klog.address], seed)
        stack.callback(made.close)
        yield made


def main() -> int:
    """Send one request and print the responses of all three brokers."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.oracle.run")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--request", type=int, required=True)
    given = parser.parse_args()
    with TemporaryDirectory() as folder, oracle(given.seed, Path(folder)) as running:
        [played] = running.play([given.request])
    print(played.describe())
    for name, responses in (
        (f"Kafka {OLDEST_KAFKA}", played.oldest),
        (f"Kafka {NEWEST_KAFKA}", played.newest),
        ("klog", played.klog),
    ):
        print(f"{name}:")
        for response in responses or ["does not serve this version"]:
            print(f"  {response}")
    return 1 if played.unexplained() else 0


if __name__ == "__main__":
    sys.exit(main())
