"""The simulated ZooKeeper keeps the contract, and has all the faults of a real one."""

import pytest

from klog_broker.runtime.zookeeper.sessions import (
    ConnectionLost,
    Created,
    NodeExists,
    OpenSession,
    SessionEvent,
    SessionExpired,
)
from tests.simulation.zookeeper import Client
from tests.support.cluster.zookeeper import ClusterWorld
from tests.support.zookeeper.contract import ZooKeeperContract
from tests.support.zookeeper.logged_session import ContractWorld, Opened

CONNECTED, DISCONNECTED, EXPIRED = SessionEvent
SESSION_MS = 6_000


class SimulatedWorld(ClusterWorld):
    """A seed's world, with one loop for all processes."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.clients: list[Client] = []

    def opener(self, chroot: str) -> OpenSession:
        self.clients.append(self.zookeeper.client(f"process {len(self.clients)}"))
        return self.clients[-1].opener(SESSION_MS, f"zookeeper:2181{chroot}")

    def expire(self, session_id: int) -> None:
        self.zookeeper.expire(session_id)

    def stop(self) -> None:
        self.zookeeper.stop()

    def start(self) -> None:
        self.resume()
        self.zookeeper.start()

    def pause(self) -> None:
        for client in self.clients:
            client.cut()

    def resume(self) -> None:
        for client in self.clients:
            client.mend()


class TestTheContract(ZooKeeperContract):
    @pytest.fixture(params=range(4))
    def world(self, request: pytest.FixtureRequest) -> ContractWorld:
        return SimulatedWorld(request.param)


def opened(world: SimulatedWorld, chroot: str = "") -> Opened:
    return Opened(world, chroot)


def test_a_seed_repeats_itself() -> None:
    def story(seed: int) -> tuple[list[str], int]:
        world = SimulatedWorld(seed)
        one, other = opened(world), opened(world)
        other.call_zookeeper("children", "/", watch=other.watch("changed"))
        for number in range(20):
            one.send_request("create", f"/{number}")
        world.clients[0].reset()
        other.until("changed")
        world.until(lambda: len(one.log) >= 23, "all answers")
        return [repr(each) for each in one.log + other.log], world.world.now_ms

    assert story(1) == story(1)
    assert len({str(story(seed)) for seed in range(6)}) == 6


def test_a_lost_answer_may_have_worked_and_a_lost_request_has_not() -> None:
    found: set[bool] = set()
    for seed in range(40):
        world = SimulatedWorld(seed)
        one = opened(world)
        lost = one.send_request("create", "/a")
        world.world.run(world.world.now_ms + seed % 8)
        world.clients[0].reset()
        one.until(CONNECTED, 2)
        if isinstance(lost[0], ConnectionLost):
            is_there = one.call_zookeeper("exists", "/a") is not None
            assert isinstance(
                one.call_zookeeper("create", "/a"), NodeExists if is_there else Created
            )
            found.add(is_there)
    assert found == {True, False}


def test_what_reading_back_says_stays_so() -> None:
    """After a session has read back, none of its lost requests is carried out any more."""
    for seed in range(60):
        world = SimulatedWorld(seed)
        world.zookeeper.lag_ms = lambda between=world.world.between: between(0, 1_500)
        one, other = opened(world), opened(world)
        for number in range(30):
            one.send_request("create", f"/{number}")
        world.world.run(world.world.now_ms + seed % 10)
        world.clients[0].reset()
        for number in range(30, 40):
            one.send_request("create", f"/{number}")
        one.until(CONNECTED, 2)
        there = one.call_zookeeper("children", "/").names
        world.world.run(world.world.now_ms + 5_000)
        other.call_zookeeper("create", "/last")
        assert set(other.call_zookeeper("children", "/").names) == {*there, "last"}


def test_reads_of_what_others_wrote_may_lag() -> None:
    lagged = 0
    for seed in range(40):
        world = SimulatedWorld(seed)
        world.zookeeper.lag_ms = lambda between=world.world.between: between(0, 20)
        one, other = opened(world), opened(world)
        one.call_zookeeper("create", "/a")
        lagged += other.call_zookeeper("exists", "/a") is None
        # A session that connects after a write sees it.
        assert opened(world).call_zookeeper("exists", "/a") is not None
    assert 0 < lagged < 40


@pytest.mark.parametrize("directions", [(), ("to",), ("from",)])
def test_a_session_that_is_cut_off_for_long_is_over(directions: tuple[str, ...]) -> None:
    for seed in range(10):
        world = SimulatedWorld(seed)
        one, other = opened(world), opened(world)
        one.call_zookeeper("create", "/a", b"", ephemeral=True)
        other.call_zookeeper("exists", "/a", watch=other.watch("gone"))
        world.clients[0].cut(*directions)
        one.until(DISCONNECTED)
        world.world.run(world.world.now_ms + 3 * SESSION_MS)
        assert other.call_zookeeper("exists", "/a") is None
        assert other.log.count("gone") == 1
        waiting = one.send_request("get", "/a")
        assert one.log[-1] is DISCONNECTED  # no server could report the expiry
        world.clients[0].mend()
        one.until(EXPIRED)
        assert isinstance(waiting[0], SessionExpired)


def test_a_short_cut_is_not_noticed() -> None:
    world = SimulatedWorld(3)
    one = opened(world)
    world.clients[0].cut()
    made = one.send_request("create", "/a")
    world.world.run(world.world.now_ms + SESSION_MS // 3)
    assert made == []
    world.clients[0].mend()
    world.until(lambda: made, "what was held up")
    assert isinstance(made[0], Created)
    assert one.log.count(DISCONNECTED) == 0


def test_a_process_that_stands_still_or_dies_loses_its_nodes() -> None:
    for is_dead in (False, True):
        world = SimulatedWorld(5)
        one, other = opened(world), opened(world)
        one.call_zookeeper("create", "/a", b"", ephemeral=True)
        client = world.clients[0]
        if is_dead:
            client.die()
        else:
            client.pause()
        before = one.log.copy()
        world.world.run(world.world.now_ms + SESSION_MS // 2)
        assert other.call_zookeeper("exists", "/a") is not None
        world.world.run(world.world.now_ms + SESSION_MS)
        assert other.call_zookeeper("exists", "/a") is None
        assert one.log == before
        if not is_dead:
            client.resume()
            one.until(EXPIRED)
