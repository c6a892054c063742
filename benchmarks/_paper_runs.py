"""The runs of `paper`: what is measured, how long, and the medians of the turns."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks._load.jobs import Measured
from benchmarks._turns import median, progress, sized

VALUE_BYTES = 200
MESSAGES = 10_000_000
SHORT_BELOW = 100_000
"""A broker below this many messages a second runs for a fixed time instead of all MESSAGES."""
SHORT_S = 60

BATCHES_OF_1 = "batches of 1"
BATCHES_OF_50 = "batches of 50"
CONSUMING = "consuming"
BATCHES = {1: BATCHES_OF_1, 50: BATCHES_OF_50}

_LONG_S = 30
_NEARLY_ALL = 0.9  # clients count a few messages less than they sent


@dataclass(frozen=True)
class Subject:
    """A broker, driven by a client to do a work. ``acks`` is None where nothing has acks."""

    broker: str
    client: str
    work: str
    acks: int | None = None

    @property
    def name(self) -> str:
        """The subject in words."""
        acks = "" if self.acks is None else f", acks={self.acks}"
        return f"{self.broker}, {self.client}, {self.work}{acks}"


@dataclass(frozen=True)
class Run:
    """One run, with the bytes that the broker's files have for each message beyond its value."""

    subject: Subject
    measured: Measured
    overhead_bytes: float | None = None


@dataclass(frozen=True)
class Figure:
    """The medians of a subject's runs."""

    subject: Subject
    per_second: float
    seconds: float = 0.0
    client_cores: float = 0.0
    broker_cores: float = 0.0
    overhead_bytes: float | None = None
    is_short: bool = False
    """Whether the runs had a fixed time instead of all MESSAGES."""


def messages_for(per_second: float) -> int:
    """How many messages a broker of this rate gets, at full size."""
    return MESSAGES if per_second >= SHORT_BELOW else max(1, round(per_second * SHORT_S))


def share_of_full_size() -> float:
    """The share of the messages and of the time that runs get: 1 unless $KLOG_BENCH_SIZE is set."""
    return sized(MESSAGES) / MESSAGES


def measure(
    run: Callable[[int], Run],
    uncounted: int,
    batch: int = 1,
    warm_up: Callable[[int], Run] | None = None,
) -> Run:
    """Run with ``uncounted`` messages, and then with as many as their rate allows.

    The number of messages is a multiple of ``batch``. There are two uncounted runs, because code is
    compiled during the first one; ``warm_up`` makes them if it is not ``run``. If all MESSAGES take
    less than _LONG_S, an uncounted run with as many leaves pages of deleted files to the counted
    run, which could not write faster than the machine gets new pages otherwise.
    """
    warm_up = warm_up or run
    warm_up(uncounted)
    warm = warm_up(uncounted).measured
    rate = warm.records / warm.seconds
    messages = max(1, sized(messages_for(rate)) // batch) * batch
    if rate * _LONG_S >= MESSAGES:
        run(messages)
    counted = run(messages)
    measured = counted.measured
    shown = f"{measured.records / measured.seconds:,.0f}/s in {measured.seconds:.1f} s"
    progress(f"{counted.subject.name}: {shown}")
    return counted


def figures(runs: Iterable[Run]) -> list[Figure]:
    """The figure of each subject, in the order of the runs."""
    by_subject: dict[Subject, list[Run]] = {}
    for run in runs:
        by_subject.setdefault(run.subject, []).append(run)
    return [_figure(subject, found) for subject, found in by_subject.items()]


def _figure(subject: Subject, runs: list[Run]) -> Figure:
    measured = [run.measured for run in runs]
    overheads = [run.overhead_bytes for run in runs if run.overhead_bytes is not None]
    return Figure(
        subject,
        median([each.records / each.seconds for each in measured]),
        median([each.seconds for each in measured]),
        median([each.generator_cores for each in measured]),
        median([each.broker_cores for each in measured]),
        median(overheads) if overheads else None,
        median([each.records for each in measured]) < _NEARLY_ALL * sized(MESSAGES),
    )
