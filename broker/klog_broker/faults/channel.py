"""Connects the fault channel of a test to the broker that the test has started."""

from __future__ import annotations

from klog_broker.app import BrokerServer
from klog_broker.config import BrokerConfig
from klog_broker.faults.commands import FaultCommands
from klog_broker.faults.isolation import IsolatedNetwork, Isolation
from klog_broker.lifecycle.component_settings import real_network
from klog_broker.membership.zookeeper_sessions import configured_sessions
from klog_broker.runtime.net.parent_channel import ParentChannel


class FaultChannel:
    """The channel on which a test adds faults to its broker. The broker must be made with `network`
    and `open_session`, so that a fault can cut its connections."""

    def __init__(self, config: BrokerConfig, descriptor: int) -> None:
        """``descriptor`` is an inherited socket.

        :raises CannotStart: if the broker joins a cluster and kazoo is not installed
        """
        self._descriptor = descriptor
        self._isolation = Isolation()
        self.network = IsolatedNetwork(real_network(config), self._isolation)
        self.open_session = (
            configured_sessions(config, self._isolation.check_zookeeper)
            if config.joins_cluster
            else None
        )

    def serve(self, broker: BrokerServer) -> None:
        """Carry out the test's commands on a started broker from now on."""
        FaultCommands(
            ParentChannel(self._descriptor),
            broker.server,
            broker.services,
            self._isolation,
            broker.cluster_lifecycle.controller(),
        ).serve()
