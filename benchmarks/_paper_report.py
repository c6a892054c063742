"""The rows, the goals and the tables of `paper`, made from its figures."""

from collections.abc import Iterator, Sequence

from benchmarks._brokers import KLOG
from benchmarks._paper_logs import CLIENTS, GENERATOR, LIBRDKAFKA
from benchmarks._paper_runs import (
    BATCHES_OF_1,
    BATCHES_OF_50,
    CONSUMING,
    Figure,
    Subject,
)
from benchmarks.rows import Row

GOALS = {BATCHES_OF_1: 50.0, BATCHES_OF_50: 150.0, CONSUMING: 50.0}
"""The least ratio of klog to the faster one of the brokers with queues, by work."""

_PAPER = "Kafka in the paper"
_PAPER_CLIENT = "own client, 2011"
_PAPER_OVERHEAD_BYTES = 9.0
_PAPER_RATES = {BATCHES_OF_1: 50_000.0, BATCHES_OF_50: 400_000.0, CONSUMING: 22_000.0}
# The producer of the paper waited for no acknowledgement, as with acks=0.
_PAPER_ACKS = {BATCHES_OF_1: 0, BATCHES_OF_50: 0, CONSUMING: None}

PAPER_FIGURES = [
    Figure(
        Subject(_PAPER, _PAPER_CLIENT, work, _PAPER_ACKS[work]),
        rate,
        overhead_bytes=None if work == CONSUMING else _PAPER_OVERHEAD_BYTES,
    )
    for work, rate in _PAPER_RATES.items()
]
"""The paper's own figures. Its text has numbers for Kafka only."""


def rows_of(figures: Sequence[Figure]) -> list[Row]:
    """klog beside each peer, work by work, with the goals; then librdkafka, then overheads."""
    return [*_rate_rows(figures), *_librdkafka_rows(figures), *_overhead_rows(figures)]


def is_queue(figure: Figure) -> bool:
    """Whether the figure is of a broker with queues."""
    return figure.subject.client not in (*CLIENTS, _PAPER_CLIENT)


def fastest_queue(figures: Sequence[Figure], work: str) -> Figure | None:
    """The fastest broker with queues; None if there is none.

    Such a broker has no batches: its figure for batches of 1 stands for batches of 50, too.
    """
    found = [each for each in figures if is_queue(each) and serves_as(each, work)]
    return max(found, key=lambda figure: figure.per_second, default=None)


def serves_as(figure: Figure, work: str) -> bool:
    """Whether the figure is klog's peer in a work."""
    named = BATCHES_OF_1 if is_queue(figure) and work == BATCHES_OF_50 else work
    return figure.subject.work == named


def _rate_rows(figures: Sequence[Figure]) -> Iterator[Row]:
    for klog in _klogs(figures, GENERATOR):
        fastest = fastest_queue(figures, klog.subject.work)
        for peer in _peers(klog, figures):
            yield _rate_row(klog, peer, GOALS[klog.subject.work] if peer is fastest else None)


def _librdkafka_rows(figures: Sequence[Figure]) -> Iterator[Row]:
    for klog in _klogs(figures, LIBRDKAFKA):
        for peer in _peers(klog, figures):
            if peer.subject.client == LIBRDKAFKA:
                yield _rate_row(klog, peer, None)


def _overhead_rows(figures: Sequence[Figure]) -> Iterator[Row]:
    for klog in _klogs(figures, GENERATOR):
        for peer in _peers(klog, figures):
            is_same_work = peer.subject.work == klog.subject.work
            if klog.subject.acks == 1 and is_same_work and peer.overhead_bytes is not None:
                work = f"overhead, {klog.subject.work}; {peer.subject.broker}"
                overhead_bytes = klog.overhead_bytes or 0.0
                yield Row(work, "bytes/msg", overhead_bytes, peer.overhead_bytes)


def _klogs(figures: Sequence[Figure], client: str) -> list[Figure]:
    """klog's figures with a client."""
    return [
        figure
        for figure in figures
        if (figure.subject.broker, figure.subject.client) == (KLOG, client)
    ]


def _peers(klog: Figure, figures: Sequence[Figure]) -> Iterator[Figure]:
    """The peers' figures to compare klog's figure with: a log's has the same client and acks."""
    for peer in (*figures, *PAPER_FIGURES):
        if peer.subject.broker == KLOG or not serves_as(peer, klog.subject.work):
            continue
        has_same_client = (peer.subject.client, peer.subject.acks) == (
            klog.subject.client,
            klog.subject.acks,
        )
        if has_same_client or peer.subject.client not in CLIENTS:
            yield peer


def _rate_row(klog: Figure, peer: Figure, bar: float | None) -> Row:
    acks = "" if klog.subject.acks is None else f", acks={klog.subject.acks}"
    work = f"{klog.subject.work}{acks}, {klog.subject.client}; {peer.subject.broker}"
    note = peer.subject.client
    if peer.seconds:
        clients = f"client {klog.client_cores:.2f} / {peer.client_cores:.2f}"
        brokers = f"broker {klog.broker_cores:.2f} / {peer.broker_cores:.2f}"
        note += f"; cores klog / peer: {clients}, {brokers}"
    if peer.is_short:
        note += f"; the peer ran for {peer.seconds:.0f} s"
    return Row(work, "msg/s", klog.per_second, peer.per_second, bar, note=note)
