"""The log lines of a broker's start-up and shutdown, at INFO, with key=value facts."""

import logging
from collections.abc import Mapping

from klog_broker.config import BrokerConfig
from klog_broker.metadata.image import MetadataImage
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.identity import process_id
from pyspark_klog._version import __version__

_log = logging.getLogger("klog.life")


class LifecycleLog:
    """Logs the start-up and shutdown of a broker, with the reason to stop: the failure of the event
    loop if there was one, else the first reason that :meth:`will_stop` got."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = clock.monotonic_ms()
        self._reason: str | None = None

    def starting(self, config: BrokerConfig) -> None:
        """Log that the broker starts, before it loads its logs."""
        self._since_ms = self._clock.monotonic_ms()
        _log.info(
            "starting version=%s broker_id=%s log_dirs=%s pid=%d",
            __version__,
            config["broker.id"],
            ",".join(map(str, config.log_dirs)),
            process_id(),
        )

    def serving(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        ports: Mapping[str, int],
        advertised: Mapping[str, tuple[str, int]],
    ) -> None:
        """Log that the listeners are open.

        ``ports`` and ``advertised`` have the port, and the advertised host and port, by listener
        name.
        """
        topics = image.topics.values()
        listeners = [each._replace(port=ports[each.name]) for each in config.listeners]
        addresses = [f"{name}://{host}:{port}" for name, (host, port) in advertised.items()]
        _log.info(
            "serving cluster_id=%s listeners=%s advertised=%s topics=%d partitions=%d took_ms=%d",
            image.cluster_id,
            ",".join(map(str, listeners)),
            ",".join(addresses),
            len(topics),
            sum(len(topic.partitions) for topic in topics),
            self._took_ms(),
        )

    def will_stop(self, reason: str) -> None:
        """Remember the reason to stop for :meth:`stopping`, unless an earlier reason is known.

        May be called from any thread or signal handler.
        """
        self._reason = self._reason or reason

    def stopping(self, connections: int, failure: str | None) -> None:
        """Log that the broker stops, because of ``failure``, or if that is None, for the reason of
        :meth:`will_stop`."""
        self._since_ms = self._clock.monotonic_ms()
        reason = failure or self._reason or "unknown"
        _log.info("stopping reason=%r connections=%d", reason, connections)

    def stopped(self, exit_code: int) -> None:
        """Log that the shutdown is complete."""
        _log.info("stopped exit_code=%d took_ms=%d", exit_code, self._took_ms())

    def _took_ms(self) -> int:
        return self._clock.monotonic_ms() - self._since_ms
