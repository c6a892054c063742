"""Two small files as a memory that the Python workers of one executor, or of the driver, share.

One file has the ids of plans (the partitions that a batch read returned to Spark), each with the
query that used the plan first. The other file has hashes of the notices that were logged. Both are
in the local folder of the executor or driver, which Spark deletes with that process. Each file has
a fixed number of slots and never grows: an entry's id determines its slot, and a later entry for
the same slot replaces the earlier one.
"""

import contextlib
import os
from hashlib import blake2b
from pathlib import Path

_PLANS = "klog-plans"
_NOTICES = "klog-notices"
_SLOTS = 8_192
_ID_BYTES = 8
_SLOT_BYTES = 2 * _ID_BYTES

_logged: set[bytes] = set()
"""Hashes of the notices (log messages to show once) for which `is_first_notice` was called in this
process."""


def is_first_notice(notice: str, folder: str | None = None) -> bool:
    """Whether no Python worker of this executor or driver is known to have called this function
    for ``notice`` before.

    A process cannot know this alone: after a pause Spark runs the commits of a streaming sink in a
    new worker, so workers share a file in Spark's local folder. Without that folder only calls in
    this process count.
    """
    notice_id = blake2b(notice.encode(), digest_size=_ID_BYTES).digest()
    if notice_id in _logged:
        return False
    _logged.add(notice_id)
    return note_plan_use(notice_id, "", folder, _NOTICES) is None


def note_plan_use(
    plan_id: bytes, key: str, folder: str | None = None, file_name: str = _PLANS
) -> bool | None:
    """Note that a task of the query ``key`` uses the plan ``plan_id`` (8 bytes that identify the
    partitions of a batch read).

    Returns None if the executor's file did not have the plan, else whether the plan was noted for
    the same query first. If the file cannot be read or written, the result is None, too.
    """
    folder = folder or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not folder:
        return None
    digest = blake2b(key.encode(), digest_size=_ID_BYTES).digest()
    place = int.from_bytes(plan_id, "big") % _SLOTS * _SLOT_BYTES
    with contextlib.suppress(OSError):
        fd = os.open(Path(folder) / file_name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            found = os.pread(fd, _SLOT_BYTES, place)
            if found[:_ID_BYTES] == plan_id:
                return found[_ID_BYTES:] == digest
            os.pwrite(fd, plan_id + digest, place)
        finally:
            os.close(fd)
    return None
