"""The driver's log lines about settings and a column `timestamp` that a sink ignores, and about
records that are older than the retention of their topic."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.errors import KlogError
from pyspark_klog.log_fallback import log_notice
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.workers.clients import client_for
from pyspark_klog.spark.workers.plan_memory import is_first_notice

if TYPE_CHECKING:
    from pyspark_klog.client.cluster.blocking_client import BlockingClient

_log = logging.getLogger(__name__)

_COLUMN = "timestamp"
_YOUNG_MS = 60_000
"""Records younger than this are not compared with the retention of their topic: brokers delete old
segments only every few minutes anyway."""
_ASK_WITHIN_MS = 5_000

_retention_ms: dict[tuple[str, str], int | None] = {}
"""The topic's retention.ms, by run (start) of a streaming query and topic; None after a warning in
this run, or if the retention is unlimited, could not be read, or does not depend on timestamps. A
batch, whose run is "", reads the setting each time."""


def log_ignored_in_run(options: Options, column_names: Iterable[str], run: str | None) -> None:
    """Log the settings and the column `timestamp` that a streaming sink ignores, once in each run
    of its query, whichever micro-batch the run begins with.

    ``run`` is None in a micro-batch without tasks: then nothing is logged yet.
    """
    if run is not None and is_first_notice(f"ignored {run}"):
        options.client.warn_of_ignored(once_in_process=False)
        log_ignored_timestamps(options, column_names)


def log_ignored_timestamps(options: Options, column_names: Iterable[str]) -> None:
    """Log one line if the rows have a column `timestamp` and option timestampColumn is not
    given."""
    if options.timestamp_column is None and _COLUMN in column_names:
        log_notice(
            _log,
            "column timestamp is ignored, as by Spark's own connector, and records get the time of "
            "writing as their timestamp: option timestampColumn=timestamp writes the column's "
            "values",
        )


def warn_of_old_records(
    options: Options, oldest_ms: Iterable[tuple[str, int]], run: str | None, what: str
) -> None:
    """Warn once for each topic, and in a stream once for each run of the query, if its oldest new
    record is older than the topic's retention. Never raises.

    ``oldest_ms`` has topics and their smallest timestamps (ms since 1970) in ``what``, the batch or
    micro-batch. There is no warning if the user may not describe the topic's settings.
    """
    oldest: dict[str, int] = {}
    for topic, at_ms in oldest_ms:
        oldest[topic] = min(at_ms, oldest.get(topic, at_ms))
    now_ms = epoch_ms()
    old = {topic: now_ms - at_ms for topic, at_ms in oldest.items() if at_ms < now_ms - _YOUNG_MS}
    if not old:
        return
    try:
        _compare(options, old, run, what)
    except Exception as error:
        # The rows are written, so the batch must not fail any more.
        _log.debug("cannot compare the records' timestamps with the retention: %s", error)


def _compare(options: Options, ages_ms: dict[str, int], run: str | None, what: str) -> None:
    client = client_for(options.client)
    deadline_ms = client.now_ms() + _ASK_WITHIN_MS
    for topic, age_ms in sorted(ages_ms.items()):
        key = (run or "", topic)
        if run is None or key not in _retention_ms:
            _retention_ms[key] = _read_retention_ms(client, topic, deadline_ms)
        kept_ms = _retention_ms[key]
        if kept_ms is None or age_ms <= kept_ms:
            continue
        _retention_ms[key] = None
        if run is not None and not is_first_notice(f"old records {run} {topic}"):
            continue
        _log.warning(
            "the oldest record of %s in topic=%s is %s old by its timestamp (timestampColumn=%s), "
            "and the topic keeps records for %s (retention.ms=%d): brokers delete such records "
            "soon; raise retention.ms, or leave out timestampColumn",
            *(what, topic, _span(age_ms), options.timestamp_column, _span(kept_ms), kept_ms),
        )


def _read_retention_ms(client: "BlockingClient", topic: str, deadline_ms: int) -> int | None:
    """The topic's retention.ms; None if the setting is unknown or unlimited, or if brokers do not
    delete records by the timestamps that producers gave them."""
    from pyspark_klog.client.admin.configs import Resource, ResourceType, describe_configs

    if client.now_ms() >= deadline_ms:
        return None
    resource = Resource(ResourceType.TOPIC, topic)
    try:
        entries = describe_configs(client, resource, deadline_ms=deadline_ms)
    except KlogError as error:
        _log.debug("cannot read the retention of topic=%s: %s", topic, error)
        return None
    values = {name: entry.value or "" for name, entry in entries.items()}
    if "delete" not in values.get("cleanup.policy", "delete"):
        return None
    if values.get("message.timestamp.type") == "LogAppendTime":
        return None
    kept_ms = int(values.get("retention.ms") or -1)
    return kept_ms if kept_ms >= 0 else None


def _span(ms: int) -> str:
    """A length of time as text, in its largest unit."""
    for unit, length_ms in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if ms >= length_ms:
            return f"{ms / length_ms:.1f} {unit}"
    return f"{ms / 1_000:.1f} seconds"
