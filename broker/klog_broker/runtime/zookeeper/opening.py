"""Opens sessions with a real ZooKeeper. Imports the optional package kazoo only when needed."""

from collections.abc import Callable

from klog_broker.runtime.zookeeper.requests import split_connect
from klog_broker.runtime.zookeeper.sessions import (
    REQUESTS_IN_FLIGHT,
    OpenSession,
    Session,
    SessionEvent,
    SessionLoop,
)
from pyspark_klog.errors import KlogError


class ZooKeeperClientMissing(KlogError):
    """The library kazoo, a client of ZooKeeper, is not installed."""


def sessions_by_kazoo(
    connect: str,
    session_timeout_ms: int,
    requests_in_flight: int = REQUESTS_IN_FLIGHT,
    check_link: Callable[[], None] | None = None,
) -> OpenSession:
    """Return the function that opens sessions with the ZooKeeper at ``connect``.

    ``connect`` is the value of ``zookeeper.connect``: host:port,host:port/chroot. The server may
    change ``session_timeout_ms``. A session tries its hosts again and again, without a limit, while
    none has an address or responds. The sessions call ``check_link`` in their own threads, before
    they connect, send or receive; an OSError from it ends the connection.

    :raises ZooKeeperClientMissing: if kazoo is not installed
    :raises ValueError: if ``connect`` is not of this form
    """
    hosts, chroot = split_connect(connect)
    try:
        from klog_broker.runtime.zookeeper.kazoo_carrier import check_hosts, open_kazoo_session
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "kazoo":
            raise
        raise ZooKeeperClientMissing(
            "a broker with zookeeper.connect needs the package kazoo, which is not installed: "
            "pip install 'pyspark-klog[zookeeper]'"
        ) from None
    check_hosts(hosts)

    def open_session(loop: SessionLoop, on_event: Callable[[SessionEvent], None]) -> Session:
        return open_kazoo_session(
            hosts, chroot, session_timeout_ms, loop, on_event, requests_in_flight, check_link
        )

    return open_session
