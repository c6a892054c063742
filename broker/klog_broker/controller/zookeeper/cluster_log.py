"""The controller's log lines about brokers that register or disappear and about elected leaders."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping

from klog_broker.controller.decisions.context import ControllerContext, RegisteredBroker
from klog_broker.controller.decisions.election_reason import (
    election_reason,
    is_unclean_election,
)
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.metrics.controller import ControllerCounts
from pyspark_klog.ids import BrokerId, TopicPartition

_log = logging.getLogger("klog.controller")


class BrokerLog:
    """Logs a line for each broker that has registered or disappeared since the last reading.

    Kept while the controller reads everything from ZooKeeper again, so that a change during a lost
    connection is logged, too.
    """

    def __init__(self) -> None:
        self._known: dict[BrokerId, RegisteredBroker] | None = None

    def forget_brokers(self) -> None:
        """Forget which brokers were registered: the next `log_changes` logs nothing."""
        self._known = None

    def log_changes(
        self, read: Mapping[BrokerId, RegisteredBroker], shutting_down: Collection[BrokerId]
    ) -> None:
        """Log how the registrations `read` differ from the last ones.

        `shutting_down` has the brokers that have asked for a controlled shutdown.
        """
        before, self._known = self._known, dict(read)
        if before is None:
            return
        for broker_id, broker in before.items():
            if broker_id in read:
                continue
            is_expected = broker_id in shutting_down
            _log.log(
                logging.INFO if is_expected else logging.WARNING,
                "broker_id=%d has disappeared %s broker_epoch=%d brokers=%d",
                broker_id,
                "after a controlled shutdown" if is_expected else "without a controlled shutdown",
                broker.epoch,
                len(read),
            )
        for broker_id, broker in read.items():
            last = before.get(broker_id)
            if last is None or last.epoch != broker.epoch:
                _log.info(
                    "broker_id=%d has registered%s broker_epoch=%d brokers=%d",
                    broker_id,
                    "" if last is None else " again",
                    broker.epoch,
                    len(read),
                )


class ElectionLog:
    """Counts elected leaders by reason, and logs one line for each reason."""

    def __init__(self, counts: ControllerCounts) -> None:
        self._counts = counts
        self._elected: Counter[str] = Counter()
        self._unclean: Counter[str] = Counter()

    def count_election(
        self, context: ControllerContext, partition: TopicPartition, after: LeaderAndIsr
    ) -> None:
        """Count the leader that `after` elects, if any; the context has the state before."""
        reason = election_reason(context, partition, after)
        if reason is None:
            return
        known = context.leadership(partition)
        is_unclean = known is not None and is_unclean_election(known.state, after)
        (self._unclean if is_unclean else self._elected)[reason] += 1

    def end_event(self, took_ms: int) -> None:
        """Log the leaders that an event has elected, and add them to the controller's counts.
        ``took_ms`` is the duration of the event."""
        if not (self._elected or self._unclean):
            return
        self._counts.add_elections(self._elected, self._unclean, took_ms)
        for reason, count in self._elected.items():
            _log.info("leaders elected count=%d reason=%s", count, reason)
        for reason, count in self._unclean.items():
            _log.warning(
                "leaders elected from replicas that were not in sync, records may be lost:"
                " unclean=%d reason=%s",
                count,
                reason,
            )
        self._elected.clear()
        self._unclean.clear()
