"""The evented client, whatever happens to its bytes, its connections and its time."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.client.transport.evented_connection import EventedSettings
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.metadata import MetadataResponse
from tests.support.client.evented_world import (
    BrokerEnd,
    EventedWorld,
    metadata_request,
    reply_bytes,
)

_SETTINGS = EventedSettings(
    client_id="test", setup_timeout_ms=300, reconnect=Backoff(20, 100), max_in_flight=3
)
_ALL_BYTES = 1 << 20
_KINDS = ["send"] * 6 + ["bytes"] * 9 + ["window", "time", "end", "reset", "refuse", "garbage"]
_AMOUNTS = {
    "send": st.sampled_from(["note"] * 14 + ["send"] * 5 + ["close"]),
    "bytes": st.just(_ALL_BYTES) | st.integers(1, 200),
    "window": st.just(_ALL_BYTES) | st.integers(1, 100),
    "time": st.integers(1, 60) | st.integers(1, 400),
}
_EVENTS = st.sampled_from(_KINDS).flatmap(
    lambda kind: st.tuples(st.just(kind), _AMOUNTS.get(kind, st.just(0)))
)


class _Run:
    """A world whose broker answers every whole request, its bytes held back until the test lets
    them through."""

    def __init__(self, begins: str) -> None:
        self.world = EventedWorld(_SETTINGS)
        self.world.network.is_slow = begins == "slow"
        self.sent = 0
        self.answered: list[tuple[int, str | None]] = []
        self._end: BrokerEnd | None = None
        self._held = bytearray()
        if begins == "ready":
            self._end = self.world.ready()

    def send(self, callback: object) -> None:
        number = self.sent
        self.sent += 1

        def on_done(reply: MetadataResponse | None, error: KlogError | None) -> None:
            assert (reply is None) != (error is None)
            self.answered.append((number, reply.cluster_id if reply is not None else None))
            if callback == "send":
                self.send("note")
            elif callback == "close":
                self.world.connection.close()

        build = metadata_request(str(number))
        self.world.connection.send(MetadataResponse, lambda _: build, on_done, 250)

    def happen(self, event: str, amount: object) -> None:
        opened = self.world.network.opened
        stream = opened[-1] if opened else None
        size = amount if isinstance(amount, int) else 0
        if event == "send":
            self.send(amount)
        elif event == "time":
            self.world.clock.advance(size)
        elif stream is None or stream.is_closed:
            pass
        elif event == "bytes":
            self._hold()
            stream.inbox += self._held[:size]
            del self._held[:size]
        elif event == "window":
            stream.room_bytes = size
        elif event == "end":
            stream.is_at_end = True
        elif event == "reset":
            stream.is_broken = True
        elif event == "refuse":
            stream.failed_connect = ConnectionRefusedError(111, "Connection refused")
            stream.room_bytes = max(stream.room_bytes, 1)
        elif event == "garbage":
            stream.inbox += b"\x00\x00\x00\x09garbage"
        self.world.loop.run_turn()

    def _hold(self) -> None:
        stream = self.world.network.opened[-1]
        if self._end is None or self._end.stream is not stream:
            self._end = BrokerEnd(stream)
            self._held.clear()
        for asked in self._end.requests():
            self._held += reply_bytes(asked)


@given(
    begins=st.sampled_from(["ready", "fast", "slow"]),
    events=st.lists(_EVENTS, min_size=10, max_size=80),
    closes=st.booleans(),
)
def test_every_request_is_answered_exactly_once_and_in_order(
    begins: str, events: list[tuple[str, object]], closes: bool
) -> None:
    run = _Run(begins)
    world = run.world
    for event, amount in events:
        run.happen(event, amount)
        assert len(world.network.poller.interest) <= 1
        assert world.connection.unanswered == run.sent - len(run.answered)
    if closes:
        world.connection.close()
    else:  # Time alone must end all requests: first the pending ones, then their callbacks' ones.
        for _ in range(3):
            world.turns(3, after_ms=300)
    world.turns(3)
    assert [number for number, _ in run.answered] == list(range(run.sent))
    assert all(name in (None, str(number)) for number, name in run.answered)
    if closes:
        assert all(stream.is_closed for stream in world.network.opened)
    assert len(world.network.poller.interest) == sum(not s.is_closed for s in world.network.opened)
    assert world.connection.unanswered == 0


@given(sizes=st.lists(st.integers(1, 40), min_size=1), count=st.integers(1, 12))
def test_pieces_of_any_size_make_no_difference(sizes: list[int], count: int) -> None:
    run = _Run("fast")
    for _ in range(count):
        run.send("note")
    position = 0
    while len(run.answered) < count:
        run.happen("window", sizes[position % len(sizes)])
        run.happen("bytes", sizes[-1 - position % len(sizes)])
        position += 1
    assert run.answered == [(number, str(number)) for number in range(count)]
