"""Without requests the broker returns to its idle state: memory, timers, waiters, open files."""

from klog_broker.network.server import Server
from tests.simulation.machine import Machine, Watcher
from tests.simulation.world import Violation

REST = "everything returns to where it was"
_OWN_TIMERS = 5
"""How many timers a broker without clients has.

One each for the logs' maintenance, expiry of offsets, overdue transactions, expiry of
transactional ids, and the log cleaner.
"""


def figures(machine: Machine) -> dict[str, int]:
    """Counts of what clients have left behind; all are 0 a while after the clients have gone."""
    broker, network, helpers = machine.broker, machine.network, machine.helpers
    assert broker is not None and helpers is not None
    server = broker.server
    return {
        "connections": server.connection_count,
        "streams": len(network.streams),
        "descriptors": len(network.poller.interest) - 1,
        "parked requests": broker.services.purgatory.waiting,
        "lent bytes": server.memory.buffers.lent_bytes,
        "arena bytes": server.memory.arena.used_bytes,
        "work in helpers": helpers.waiting,
        "timers": broker.loop._wheel.active_timers - _OWN_TIMERS - _looks_for_idle(server),
        "logs being cleaned": sum(log._state.is_being_cleaned for log in machine.logs()),
        "removed files that are open": len(machine.files.removed_files_held()),
        "flush waiters": sum(log.flush_waiters for log in machine.logs()),
    }


def _looks_for_idle(server: Server) -> bool:
    """Whether the timer that closes idle connections runs; it ends without connections."""
    return server._idle_timer is not None


class Rest(Watcher):
    """After a clean stop the broker holds no descriptors, streams, locks or mappings."""

    def on_clean_end(self, machine: Machine) -> None:
        network, files = machine.network, machine.files
        if machine.has_disk_trouble:
            # The broker could not close all files, and said so: the next start recovers.
            return
        if any(log.is_being_cut for log in machine.logs()):
            # A follower does not wait for the end of a truncation either.
            return
        held = {
            "registered descriptors": len(network.poller.interest),
            "open streams": len(network.streams),
            "locks": len(files.locks),
            "mappings": files.open_mappings,
        }
        check_zero(held)


def check_zero(held: dict[str, int]) -> None:
    """Violation if a count is not 0."""
    left = {name: count for name, count in held.items() if count}
    if left:
        raise Violation(REST, str(left))
