"""Znodes that cannot be used: each is named in the log, once, and left as it is.

What has been named is kept as digests, and the oldest are forgotten: a znode may have a megabyte,
and somebody may make ever new ones.
"""

from hashlib import blake2b
from logging import Logger

MAX_NAMED = 10_000
"""Beyond it those that were named first may be named once more."""
_DIGEST_BYTES = 16


class BadZnodes:
    """See the module."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._named: dict[bytes, bytes] = {}

    def name(self, path: str, data: bytes, why: str) -> None:
        """Name a znode; once, as long as it is as it is."""
        key, found = _digest(path.encode(errors="surrogatepass")), _digest(data)
        if self._named.pop(key, None) != found:
            self._log.error("znode=%s is left out, and left as it is: %s", path, why)
        self._named[key] = found
        if len(self._named) > MAX_NAMED:
            del self._named[next(iter(self._named))]


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
