"""The query for which the Python workers of one executor first saw a plan: a small file.

The file is in the executor's own local folder, which Spark deletes with the executor. The file has
a fixed number of slots and never grows: a plan is forgotten when a later plan takes its slot.
"""

import contextlib
import os
from hashlib import blake2b
from pathlib import Path

_NAME = "klog-plans"
_SLOTS = 8_192
_ID_BYTES = 8
_SLOT_BYTES = 2 * _ID_BYTES


def remember(plan_id: bytes, key: str, folder: str | None = None) -> bool | None:
    """Note that a task of the query ``key`` uses the plan of 8 bytes ``plan_id``.

    Returns None if the plan was not known, else whether it was first used by the same query. A
    file that cannot be read or written counts as a plan that was not known.
    """
    folder = folder or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not folder:
        return None
    digest = blake2b(key.encode(), digest_size=_ID_BYTES).digest()
    place = int.from_bytes(plan_id, "big") % _SLOTS * _SLOT_BYTES
    with contextlib.suppress(OSError):
        fd = os.open(Path(folder) / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            found = os.pread(fd, _SLOT_BYTES, place)
            if found[:_ID_BYTES] == plan_id:
                return found[_ID_BYTES:] == digest
            os.pwrite(fd, plan_id + digest, place)
        finally:
            os.close(fd)
    return None
