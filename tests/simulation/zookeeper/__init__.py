"""A ZooKeeper of several servers without a network: sessions, watches, and all that goes wrong.

One list has all writes, in the order of their commits; each server applies it at its own pace, so
reads may lag. A session is at one server at a time. A request of a session waits there until those
before it are done, so what a session does is in order. Sessions run out by the world's clock; the
world's seed decides on delays, on which server a client comes to, and on what of a broken
connection still arrives.
"""

from tests.simulation.zookeeper.clients import Client
from tests.simulation.zookeeper.servers import SimulatedZooKeeper

__all__ = ["Client", "SimulatedZooKeeper"]
