"""A few calls to ZooKeeper for tests, by kazoo itself."""

from types import TracebackType

from kazoo.client import KazooClient


class ZooKeeperClient:
    """A ZooKeeper client for a with statement."""

    def __init__(self, connect: str) -> None:
        self._client = KazooClient(connect)

    def __enter__(self) -> "ZooKeeperClient":
        self._client.start(timeout=60)
        self._client.ensure_path("/")
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._client.stop()
        self._client.close()

    def get(self, path: str) -> bytes:
        data: bytes = self._client.get(path)[0]
        return data

    def exists(self, path: str) -> bool:
        return self._client.exists(path) is not None

    def children(self, path: str) -> list[str]:
        return sorted(self._client.get_children(path))

    def create(self, path: str, data: bytes) -> None:
        """A node that stays, with its parents."""
        self._client.create(path, data, makepath=True)

    def set(self, path: str, data: bytes) -> None:
        """Replace a node's data."""
        self._client.set(path, data)
