"""Commits a query's position to a consumer group: option ``commitGroupId``.

Tools that show the lag of groups then show the query's lag. The position is a copy for people and
monitors: a query continues at its checkpoint. A commit to the group never fails the query, and
delays only the end of an AvailableNow run, by at most `SETTLE_WITHIN_S`. Spark ends a query without
waiting for `GroupCommitter.close`.
"""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark_klog.client import clock
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.spark.offsets import Offsets

if TYPE_CHECKING:
    from pyspark_klog.client.cluster.blocking_client import BlockingClient

_log = logging.getLogger(__name__)

AGAIN_AFTER_S = 3600.0
"""An idle query commits again after this time, because the offsets of an empty group expire
(offsets.retention.minutes)."""
RETRY_AFTER_S = 5.0
COMMIT_WITHIN_MS = 10_000
"""After this time a commit is given up and the newest position is tried: the older one may name a
topic that does not exist any more."""
CLOSE_WITHIN_S = 3.0
SETTLE_WITHIN_S = 1.0

_HAS_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


def commit_with(client: "BlockingClient", group_id: str, position: Offsets) -> None:
    """Commit offsets to a group without members."""
    from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets

    offsets = {p: CommittedOffset(o) for p, o in position.items()}
    commit_offsets(client, group_id, offsets, client.deadline(COMMIT_WITHIN_MS))


class GroupCommitter:
    """Commits a query's position (the offsets up to which it has read) to a consumer group, in a
    thread and with a client of its own. If `report` is called again before a commit, only the newer
    position is committed.

    ``commit``, ``now_s`` (monotonic seconds) and ``again_after_s`` can be replaced in tests.
    """

    def __init__(
        self,
        settings: ClientSettings,
        group_id: str,
        *,
        commit: Callable[["BlockingClient", str, Offsets], None] = commit_with,
        now_s: Callable[[], float] = clock.monotonic_s,
        again_after_s: float = AGAIN_AFTER_S,
    ) -> None:
        self._settings = settings
        self._group_id = group_id
        self._commit = commit
        self._now_s = now_s
        self._again_after_s = again_after_s
        self._changed = threading.Condition()
        self._newest: Offsets = {}
        self._committed: Offsets | None = None
        self._refused: Offsets | None = None
        self._due_s = 0.0
        self._closing = False
        self._warned = False
        self._thread: threading.Thread | None = None

    def report(self, position: Offsets) -> None:
        """Note that Spark has committed ``position`` to the query's checkpoint, so that the thread
        commits it to the group. Returns at once."""
        if not position or position == self._newest:
            return
        with self._changed:
            self._newest = dict(position)
            self._due_s = 0.0
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="klog-group", daemon=True)
            self._thread.start()

    def settle(self) -> None:
        """Wait until the last reported position is committed to the group, or this commit has
        failed; at most `SETTLE_WITHIN_S`.

        Called at the end of an AvailableNow run: the driver's container may stop as soon as the
        query has ended, and this process, which commits in a thread, stops with it.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: not self._newest or self._newest in (self._committed, self._refused),
                SETTLE_WITHIN_S,
            )

    def close(self) -> None:
        """Let the thread commit the last reported position to the group, and end the thread; wait
        for both at most `CLOSE_WITHIN_S`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_WITHIN_S)

    def _run(self) -> None:
        from pyspark_klog.client.cluster.blocking_client import BlockingClient

        with BlockingClient(self._settings) as client:
            client.retries.mute()  # `_warn` reports the failures of commits
            while (position := self._next()) is not None:
                self._attempt(client, position)

    def _next(self) -> Offsets | None:
        """Wait until a commit to the group is due and return the position to commit; None if
        `close` was called, and the newest position is committed or its commit has failed."""
        with self._changed:
            while True:
                is_new = self._newest != self._committed
                wait_s = self._due_s - self._now_s()
                if wait_s <= 0 or (self._closing and is_new):
                    return self._newest
                if self._closing:
                    return None
                self._changed.wait(wait_s)

    def _attempt(self, client: "BlockingClient", position: Offsets) -> None:
        try:
            self._commit(client, self._group_id, position)
        except Exception as error:
            self._warn(error)
            after_s, done = RETRY_AFTER_S, None
        else:
            after_s, done = self._again_after_s, position
        with self._changed:
            self._committed = done if done is not None else self._committed
            self._refused = position if done is None else None
            if self._closing and done is None:
                self._committed = self._newest
            if self._newest == position:
                self._due_s = self._now_s() + after_s
            self._changed.notify_all()

    def _warn(self, error: Exception) -> None:
        if self._warned:
            _log.debug("position not committed to group=%s: %s", self._group_id, error)
            return
        self._warned = True
        if isinstance(error, BrokerError) and error.code in _HAS_MEMBERS:
            _log.warning(
                "the position is not committed to group %s: it has active members, and only these "
                "may commit; give the query its own commitGroupId",
                self._group_id,
            )
        else:
            _log.warning(
                "the position could not be committed to group %s, which does not fail the query; "
                "klog tries again while the query runs: %s",
                self._group_id,
                error,
            )
