"""Makes the settings of the network, log and compaction packages from the broker's config."""

import math
import sys

from klog_broker.compaction.settings import CleanerSettings
from klog_broker.config import BrokerConfig, parse_per_ip_overrides
from klog_broker.log.manager.log_manager import LogManagerSettings
from klog_broker.network.server import NetworkLimits
from klog_broker.runtime.net.sockets import RealNetwork
from klog_broker.runtime.system import descriptors


def real_network(config: BrokerConfig) -> RealNetwork:
    """This machine's network with the configured socket buffers.

    A buffer size that is not configured is left to the operating system, which tunes the buffers of
    each connection up to several MiB. Kafka's default of 100 KiB would disable this tuning.
    """

    def size(name: str) -> int | None:
        return config[name] if config.is_set(name) and config[name] > 0 else None

    return RealNetwork(size("socket.send.buffer.bytes"), size("socket.receive.buffer.bytes"))


def network_limits(config: BrokerConfig) -> NetworkLimits:
    """The limits of connections and requests, from Kafka's settings.

    The process's file descriptors limit the number of connections, too.
    """
    return NetworkLimits(
        max_request_bytes=config["socket.request.max.bytes"],
        max_idle_ms=config["connections.max.idle.ms"],
        max_connections=min(config["max.connections"], descriptors.connection_limit()),
        max_connections_per_ip=config["max.connections.per.ip"],
        max_connections_per_ip_overrides=parse_per_ip_overrides(
            config["max.connections.per.ip.overrides"]
        ),
        queued_max_request_bytes=config["queued.max.request.bytes"],
        backlog=config["socket.listen.backlog.size"],
    )


def log_settings(config: BrokerConfig) -> LogManagerSettings:
    """The log manager's intervals, recovery threads and least free disk space."""
    return LogManagerSettings(
        retention_check_interval_ms=config["log.retention.check.interval.ms"],
        flush_scheduler_interval_ms=config["log.flush.scheduler.interval.ms"],
        flush_offset_checkpoint_interval_ms=config["log.flush.offset.checkpoint.interval.ms"],
        flush_start_offset_checkpoint_interval_ms=config[
            "log.flush.start.offset.checkpoint.interval.ms"
        ],
        high_watermark_checkpoint_interval_ms=config[
            "replica.high.watermark.checkpoint.interval.ms"
        ],
        producer_id_expiration_ms=config["producer.id.expiration.ms"],
        producer_id_expiration_check_interval_ms=config["producer.id.expiration.check.interval.ms"],
        recovery_threads_per_data_dir=config["num.recovery.threads.per.data.dir"],
        min_free_bytes=config["log.dir.min.free.bytes"],
    )


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """The log cleaner's settings.

    A rate that is not positive, and the default rate, Java's largest double, mean no limit.
    """
    rate = config["log.cleaner.io.max.bytes.per.second"]
    return CleanerSettings(
        enabled=config["log.cleaner.enable"],
        threads=config["log.cleaner.threads"],
        dedupe_buffer_bytes=config["log.cleaner.dedupe.buffer.size"],
        load_factor=config["log.cleaner.io.buffer.load.factor"],
        max_bytes_per_second=rate if 0 < rate < sys.float_info.max else math.inf,
        backoff_ms=config["log.cleaner.backoff.ms"],
    )
