"""Opens the broker's sessions with the ZooKeeper servers of `zookeeper.connect`."""

from collections.abc import Callable

from klog_broker.config import BrokerConfig
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.runtime.zookeeper.opening import ZooKeeperClientMissing, sessions_by_kazoo
from klog_broker.runtime.zookeeper.sessions import OpenSession as OpenSession


def configured_sessions(
    config: BrokerConfig, check_link: Callable[[], None] | None = None
) -> OpenSession:
    """Return a function that opens a session with the configured ZooKeeper servers.

    ``check_link`` is that of `sessions_by_kazoo`. Raises CannotStart if kazoo is not installed.
    """
    try:
        return sessions_by_kazoo(
            config["zookeeper.connect"],
            config["zookeeper.session.timeout.ms"],
            config["zookeeper.max.in.flight.requests"],
            check_link,
        )
    except ZooKeeperClientMissing as error:
        raise CannotStart(ExitCode.REFUSED, str(error)) from None
