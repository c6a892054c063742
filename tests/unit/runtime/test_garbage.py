"""When long-lived objects are hidden from Python's garbage collector."""

from klog_broker.runtime.event_loop.garbage import LEAST_CHANGE, LOOK_MS, LongLived
from tests.support.cluster.zookeeper import ClusterWorld


class Noted:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def collect(self) -> int:
        self.calls.append("collect")
        return 0

    def freeze(self) -> None:
        self.calls.append("freeze")

    def unfreeze(self) -> None:
        self.calls.append("unfreeze")

    def pop_calls(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


def test_what_is_new_is_set_aside_once_it_rests() -> None:
    world, collector, replicas = ClusterWorld(), Noted(), 50

    def looks(count: int) -> list[str]:
        nonlocal replicas
        replicas = count
        world.advance(LOOK_MS)
        return collector.pop_calls()

    LongLived(world.loop, lambda: replicas, collector).start_checks()
    assert looks(50 + LEAST_CHANGE) == []
    assert looks(50 + LEAST_CHANGE) == [], "too few to stop the loop for"
    assert looks(2_000) == []
    assert looks(2_500) == [], "there will be more"
    assert looks(2_500) == ["collect", "freeze"]
    assert looks(2_500) == []
    assert [looks(2_740), looks(2_740)] == [[], []], "less than a tenth"
    assert [looks(2_000), looks(2_000)] == [[], ["unfreeze", "collect", "freeze"]]
    assert [looks(2_000), looks(2_000)] == [[], []]
