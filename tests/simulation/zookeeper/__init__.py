"""A ZooKeeper of several servers without a network: sessions, watches and faults.

One list has all writes, in the order of their commits; each server applies it at its own pace, so
reads may lag. A session is at one server at a time. A request waits there until the session's
earlier requests are done, so a session's requests take effect in order. Sessions expire by the
world's clock. The world's seed chooses delays, the server that a client connects to, and which data
of a broken connection still arrives.
"""

from tests.simulation.zookeeper.clients import Client
from tests.simulation.zookeeper.servers import SimulatedZooKeeper

__all__ = ["Client", "SimulatedZooKeeper"]
