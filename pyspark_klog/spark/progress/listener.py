"""A listener that reports how far streaming queries are behind the ends of their topics."""

import logging
from collections.abc import Callable

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_klog.spark.progress.lag import SourceLag, lag

_log = logging.getLogger(__name__)

OnLag = Callable[[str, SourceLag], None]


def log_lag(query: str, source: SourceLag) -> None:
    """Log the lag of one source as a line."""
    _log.info(
        "query=%s source=%s offsets behind: min=%d max=%d avg=%.1f oldest unread record: age_ms=%s",
        query,
        source.description,
        source.min_offsets_behind_latest,
        source.max_offsets_behind_latest,
        source.avg_offsets_behind_latest,
        max(source.time_ms.values(), default=None),
    )


class LagListener(StreamingQueryListener):
    """Calls ``on_lag(query name or id, lag)`` for each Kafka source in each progress event of a
    streaming query::

        spark.streams.addListener(pyspark_klog.LagListener(gauge))

    Here ``gauge`` is a user's function; without ``on_lag`` the listener logs a line for each
    source. Spark calls listeners in one thread of the driver.
    """

    def __init__(self, on_lag: OnLag = log_lag) -> None:
        self._on_lag = on_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Does nothing: a query that starts has no lag yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report the lag of each Kafka source after a micro-batch."""
        query = event.progress.name or str(event.progress.id)
        for source in lag(event.progress):
            self._on_lag(query, source)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Does nothing: the event of an idle query has no progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Does nothing: a query that has ended has no lag."""
