"""Logs bad znodes: each znode whose name or data the broker cannot decode or must not read, once.

The code that reads a bad znode ignores it and does not change it. The logged znodes are remembered
as digests, because a znode's data may be a megabyte. The oldest digests are forgotten, because
clients of ZooKeeper may create new bad znodes without end. A znode whose digest was forgotten, or
whose data has changed, is logged again.
"""

from hashlib import blake2b
from logging import Logger

MAX_NAMED = 10_000
"""How many logged znodes are remembered. A znode that is forgotten may be logged again."""
_DIGEST_BYTES = 16


class BadZnodes:
    """Logs bad znodes; logs a znode again only when its data has changed, or when the znode is no
    longer among the MAX_NAMED that are remembered."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._named: dict[bytes, bytes] = {}

    def name(self, path: str, data: bytes, why: str) -> None:
        """Log that the znode `path` with `data` is ignored because of `why`, unless the last log
        line about `path` is remembered and was for the same data."""
        key, found = _digest(path.encode(errors="surrogatepass")), _digest(data)
        if self._named.pop(key, None) != found:
            self._log.error("znode=%s is ignored, and stays unchanged: %s", path, why)
        self._named[key] = found
        if len(self._named) > MAX_NAMED:
            del self._named[next(iter(self._named))]


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
