"""When a broker brings its kernels by itself: compiled at once, loaded while nobody waits."""

import struct
from typing import Any

import pytest

from klog_broker import app, process
from klog_broker.config import BrokerConfig
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.network.connection import Connection
from klog_broker.network.responses import QueuedResponse
from klog_broker.network.server import NetworkLimits, Server
from klog_broker.network.single_requests import SingleResponse
from klog_broker.produce.kernel_loading import compile_produce_kernel
from klog_broker.produce.quiet_loading import QuietKernelLoader
from klog_broker.produce.turn_plans import UNPLANNED_REQUESTS, TurnPlans
from klog_broker.runtime.event_loop.loop import Loop
from tests.support.cluster.helpers import Helpers
from tests.support.runtime.fake_network import FakeNetwork
from tests.support.runtime.manual_clock import ManualClock

PRODUCE, METADATA = (struct.pack(">ihhi", 8, api_key, 0, 7) for api_key in (0, 3))


def answer_at_once(_: memoryview, slot: QueuedResponse | SingleResponse, __: Connection) -> bool:
    slot.complete([b"x"])
    return True


class World:
    """A started server; ``can_compile`` is the result of compiling the kernels."""

    def __init__(self, can_compile: bool = True) -> None:
        self.clock = ManualClock()
        self.network = FakeNetwork()
        self.loop = Loop(self.clock, self.network.poller)
        self.helpers = Helpers.held()
        self.happened: list[str] = []
        self.server = Server(
            self.loop,
            self.helpers,
            self.network,
            NetworkLimits(),
            answer_at_once,
            frozenset([0]),
        )
        self.server.listen("PLAINTEXT", "127.0.0.1", 0)
        self.plans = TurnPlans(self.server, self._load, self._load)
        self.server.use_plans(self.plans)

        def compile_kernel(_: object) -> bool:
            self.happened.append("compile")
            return can_compile

        QuietKernelLoader(self.server, self.plans, compile_kernel).start_compiling()

    def _load(self, _: object) -> Any:
        self.happened.append("load")

    def pass_ms(self, duration_ms: int, every_ms: int = 50) -> None:
        for _ in range(duration_ms // every_ms):
            self.clock.advance(every_ms)
            self.loop.run_turn(0)
            self.helpers.run_all()


def test_kernels_are_compiled_at_once_and_loaded_after_the_first_produce() -> None:
    world = World()
    stream = world.network.arrive("10.0.0.1")
    stream.inbox += METADATA
    world.pass_ms(60_000)
    assert world.happened == ["compile"]
    stream.inbox += PRODUCE
    world.pass_ms(3_000)
    assert world.happened == ["compile", "load"]
    world.pass_ms(60_000)
    assert world.happened == ["compile", "load"]


def test_a_disconnected_client_counts_too() -> None:
    world = World()
    stream = world.network.arrive("10.0.0.1")
    stream.inbox += PRODUCE
    stream.is_at_end = True
    world.pass_ms(3_000)
    assert world.server.connection_count == 0
    assert world.happened == ["compile", "load"]


def test_nothing_is_loaded_while_a_client_is_served() -> None:
    world = World()
    stream = world.network.arrive("10.0.0.1")
    for _ in range(100):
        stream.inbox += PRODUCE
        world.pass_ms(200)
    assert stream.receives >= 100
    assert world.happened == ["compile"]
    world.pass_ms(2_000)
    assert world.happened == ["compile", "load"]


def test_many_requests_one_by_one_are_worth_a_load_though_it_is_never_quiet() -> None:
    world = World()
    stream = world.network.arrive("10.0.0.1")
    world.pass_ms(50)
    for _ in range(UNPLANNED_REQUESTS - 1):
        stream.inbox += PRODUCE
        world.pass_ms(50)
    assert world.happened == ["compile"]
    stream.inbox += PRODUCE
    world.pass_ms(50)
    assert world.happened == ["compile", "load"]


def test_a_load_that_was_worth_it_before_is_not_repeated() -> None:
    world = World()
    world.plans.load()
    world.network.arrive("10.0.0.1").inbox += PRODUCE
    world.pass_ms(10_000)
    assert sorted(world.happened) == ["compile", "load"]


def test_what_cannot_be_compiled_is_left_to_the_first_load() -> None:
    world = World(can_compile=False)
    world.network.arrive("10.0.0.1").inbox += PRODUCE
    world.pass_ms(10_000)
    assert world.happened == ["compile"]


@pytest.mark.parametrize("until_stdin_ends", [False, True])
def test_an_embedded_broker_does_not_warm_up(
    monkeypatch: pytest.MonkeyPatch, until_stdin_ends: bool
) -> None:
    """pyspark_klog.testing starts its brokers so: a suite of tests starts hundreds."""
    given: list[object] = []

    def refuse(_: BrokerConfig, **borders: object) -> app.BrokerServer:
        given.append(borders["compile_kernel"])
        raise CannotStart(ExitCode.BUG, "it is not to run")

    monkeypatch.setattr(process, "BrokerServer", refuse)
    code = process.run(BrokerConfig.load(), until_stdin_ends=until_stdin_ends)
    assert code == ExitCode.BUG
    assert given == [None if until_stdin_ends else compile_produce_kernel]
