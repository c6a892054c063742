"""The states of a connection: the table is complete, and only its transitions happen."""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klog_broker.network import connection as connection_module
from klog_broker.network import connection_states
from klog_broker.network import outbox as outbox_module
from klog_broker.network.connection import Connection
from klog_broker.network.connection_states import (
    CLOSED,
    FIRST,
    STATES,
    TRANSITIONS,
    ConnectionState,
)
from klog_broker.network.responses import QueuedResponse
from klog_broker.network.server import NetworkLimits, Server
from klog_broker.runtime.event_loop.loop import Loop
from tests.support.runtime.fake_network import FakeNetwork, FakeStream
from tests.support.runtime.manual_clock import ManualClock

PRODUCE, OTHER = 0, 3
SEEDS = 100
STEPS = 150

Step = tuple[ConnectionState, ConnectionState]


def frame(api_key: int, body: bytes) -> bytes:
    content = struct.pack(">hhi", api_key, 0, 7) + body
    return struct.pack(">i", len(content)) + content


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Step]]:
    """The steps that connections take; each must be in the table."""
    steps: set[Step] = set()
    slot: Any = vars(Connection)["state"]

    def change(connection: Connection, after: ConnectionState) -> None:
        try:
            before = slot.__get__(connection)
        except AttributeError:
            assert after is FIRST
        else:
            if after is not before:
                assert after in TRANSITIONS[before], f"{before.name} to {after.name}"
                steps.add((before, after))
        slot.__set__(connection, after)

    monkeypatch.setattr(Connection, "state", property(slot.__get__, change))
    # Small bounds, so that a short walk reaches them.
    monkeypatch.setattr(connection_module, "REQUESTS_PER_TURN", 3)
    monkeypatch.setattr(outbox_module, "PENDING_RESPONSES", 8)
    yield steps


class PlansOfAWalk:
    """Takes the first request of some connections, when the turn's receiving is over."""

    is_planning = True

    def __init__(self, loop: Loop, chance: random.Random, answer: Callable[[], object]) -> None:
        self._loop = loop
        self._chance = chance
        self._answer = answer

    def offer_received(
        self, connection: Connection, first_frame_bytes: int, received_bytes: int
    ) -> bool:
        if first_frame_bytes > received_bytes or self._chance.random() < 0.4:
            return False

        def plan() -> None:
            # A plan's appends can complete other requests, and a plan can find that a log failed.
            if self._chance.random() < 0.3:
                self._answer()
            if self._chance.random() < 0.02:
                connection.close("a log failed")
            if connection.plannable() is None or self._chance.random() < 0.3:
                connection.on_planned(0, [])
            else:
                connection.on_planned(first_frame_bytes, [b"planned"])

        self._loop.call_at_append(plan)
        return True

    def offer_readable(self, connection: Connection) -> bool:
        if self._chance.random() < 0.5:
            return False
        put_off = self._chance.random() < 0.2
        self._loop.call_at_append(connection.put_off if put_off else connection.receive)
        return True


class Walk:
    """A broker and its clients; any client may do anything at any time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(0)
        self.network = FakeNetwork()
        self.loop = Loop(self.clock, self.network.poller)
        self.open_slots: list[QueuedResponse] = []
        helpers: Any = None  # nothing is read ahead here
        self.server = Server(
            self.loop,
            helpers,
            self.network,
            NetworkLimits(max_idle_ms=5_000),
            self._handle,
            frozenset([PRODUCE]),
        )
        self.server.use_plans(PlansOfAWalk(self.loop, self.chance, self.fill))
        self.server.listen("PLAINTEXT", "127.0.0.1", 0)
        self.streams: list[FakeStream] = []

    def _handle(self, request: memoryview, slot: QueuedResponse, connection: Connection) -> None:
        assert connection.state.parses
        if self.chance.random() < 0.4:
            slot.complete([bytes(request)])
            return
        if self.chance.random() < 0.2:
            slot.hold()
        self.open_slots.append(slot)

    def fill(self) -> None:
        """Answers one of the requests that are worked on, if there is any."""
        if not self.open_slots:
            return
        slot = self.open_slots.pop(self.chance.randrange(len(self.open_slots)))
        how = self.chance.random()
        if how < 0.1:
            slot.close("the walk says so")
        elif how < 0.2:
            slot.skip()
        else:
            slot.complete([b"answer" * 3])

    def step(self) -> None:
        streams = [each for each in self.streams if not each.is_closed]
        stream = self.chance.choice(streams) if streams else None
        actions: list[tuple[float, Callable[[], object]]] = [(1, self._arrive)]
        actions.append((4, self.fill))
        if stream is not None and not stream.is_at_end:
            actions += [
                (6, lambda: self._send(stream)),
                (0.5, lambda: self._leave(stream)),
            ]
        if stream is not None:
            actions += [
                (0.2, lambda: setattr(stream, "is_broken", True)),
                (2, lambda: setattr(stream, "room_bytes", self.chance.choice([0, 9, 1 << 30]))),
            ]
        actions += [(1, lambda: self.clock.advance(self.chance.choice([1, 100, 6_000])))]
        weights = [weight for weight, _ in actions]
        self.chance.choices([action for _, action in actions], weights)[0]()
        self.loop.run_turn(0)

    def _arrive(self) -> None:
        if len(self.streams) < 12:
            self.streams.append(self.network.arrive("10.0.0.1"))

    def _send(self, stream: FakeStream) -> None:
        produces = self.chance.choice([0.5, 1])
        for _ in range(self.chance.choice([1, 2, 3, 12])):
            api_key = PRODUCE if self.chance.random() < produces else OTHER
            stream.inbox += frame(api_key, bytes(self.chance.randrange(9)))
        if self.chance.random() < 0.2:
            del stream.inbox[-self.chance.randrange(1, 9) :]
        if self.chance.random() < 0.02:
            stream.inbox += b"\xff" * 8

    def _leave(self, stream: FakeStream) -> None:
        if self.chance.random() < 0.5:
            self._send(stream)
        stream.is_at_end = True

    def stop(self) -> None:
        """The broker stops, one connection after the other; clients do as before."""
        self.server.stop_accepting()
        while self.server.end_connections(1):
            for _ in range(self.chance.randrange(6)):
                self.step()
        for _ in range(20):
            self.step()

    def finish(self) -> None:
        """Everything is answered and all clients leave."""
        for stream in self.streams:
            stream.room_bytes = 1 << 30
            stream.is_at_end = True
        for _ in range(200):
            while self.open_slots:
                self.open_slots.pop().complete([b"late"])
            self.loop.run_turn(0)
        assert self.server.connection_count == 0
        assert self.server.memory.arena.used_bytes == 0
        assert self.server.memory.buffers.lent_bytes == 0


def test_the_table_has_each_state_once_and_each_leads_to_the_end() -> None:
    assert len({state.name for state in STATES}) == len(STATES)
    assert {
        each for each in vars(connection_states).values() if isinstance(each, ConnectionState)
    } == set(STATES)
    assert list(TRANSITIONS) == list(STATES)
    assert not TRANSITIONS[CLOSED]
    reached = {FIRST}
    for _ in STATES:
        reached |= {after for before in reached for after in TRANSITIONS[before]}
    assert reached == set(STATES)
    for state in STATES:
        assert state is CLOSED or CLOSED in TRANSITIONS[state]
        # Bytes are kept only where some are received, and parsing is not resumed where it is over.
        assert state.receives or not state.sets_aside
        assert state.parses or not state.resumes


def test_connections_take_the_steps_of_the_table_and_all_of_them(seen: set[Step]) -> None:
    for seed in range(SEEDS):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.step()
        if seed % 4 == 0:
            walk.server.close()
            assert walk.server.connection_count == 0
            continue
        if seed % 4 == 1:
            walk.stop()
        walk.finish()
    missing = {(before, after) for before in STATES for after in TRANSITIONS[before]} - seen
    assert not [f"{before.name} to {after.name}" for before, after in missing]
