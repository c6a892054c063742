"""The settings of connections, callbacks and logging, which producers, consumers and the
AdminClient have alike."""

from pyspark_klog.kafka._setting_types import (
    LONG_MAX,
    Kind,
    Row,
    callback,
    flag,
    ignored,
    ignored_texts,
    number,
    refused,
    text,
)

DEBUG_CONTEXTS = (
    *("generic", "broker", "topic", "metadata", "feature", "queue", "msg", "protocol", "cgrp"),
    *("security", "fetch", "interceptor", "plugin", "consumer", "admin", "eos", "mock"),
    *("assignor", "conf", "telemetry", "all"),
)
FEATURES = (
    *("gzip", "snappy", "ssl", "sasl", "regex", "lz4", "sasl_plain", "sasl_scram", "zstd"),
    *("sasl_oauthbearer", "http", "oidc"),
)

_ACTING: tuple[Row, ...] = (
    text(
        *("bootstrap.servers", None, "addresses (host:port,...) to begin with; the port is 9092"),
        aliases=("metadata.broker.list",),
        client="bootstrap.servers",
    ),
    text(
        *("client.id", "pyspark-klog", "the name that brokers log and count quotas by"),
        client="client.id",
    ),
    text("client.software.name", "pyspark-klog", "the client's name, which brokers may count"),
    text("client.software.version", None, "the client's version; by default that of klog"),
    number(
        *("request.timeout.ms", 60_000),
        "longest wait for a response, as in Java, and the broker's limit for a Produce request,"
        " which is all that librdkafka means by this name",
        *(1, 900_000),
        aliases=("socket.timeout.ms",),
        client="request.timeout.ms",
    ),
    number(
        *("default.api.timeout.ms", 60_000, "longest time of one call, retries included"),
        client="default.api.timeout.ms",
    ),
    number(
        *("retry.backoff.ms", 100, "wait before the first retry", 1, 300_000),
        client="retry.backoff.ms",
    ),
    number(
        *("retry.backoff.max.ms", 1_000, "longest wait before a retry", 1, 300_000),
        client="retry.backoff.max.ms",
    ),
    number(
        *("reconnect.backoff.ms", 100, "wait before the first new attempt to connect"),
        *(0, 3_600_000),
        client="reconnect.backoff.ms",
    ),
    number(
        *("reconnect.backoff.max.ms", 10_000, "longest wait before an attempt to connect"),
        *(0, 3_600_000),
        client="reconnect.backoff.max.ms",
    ),
    number(
        *("socket.connection.setup.timeout.ms", 30_000, "longest wait for a connection", 1_000),
        client="socket.connection.setup.timeout.ms",
    ),
    number(
        *("connections.max.idle.ms", 0, "idle time after which a connection is closed; 0: never"),
        *(-1, LONG_MAX),
        client="connections.max.idle.ms",
    ),
    number(
        *("metadata.max.age.ms", 900_000, "metadata is fetched again after this time", 1),
        86_400_000,
        client="metadata.max.age.ms",
    ),
    number(
        *("topic.metadata.refresh.interval.ms", 300_000),
        "metadata is fetched again after this time (-1: never), or metadata.max.age.ms if shorter",
        *(-1, 3_600_000),
    ),
    number(
        "topic.metadata.propagation.max.ms",
        *(30_000, "how long a topic may be unknown before its records fail", 0, 3_600_000),
        clients=("producer",),
    ),
    number(
        *("receive.buffer.bytes", 0, "SO_RCVBUF; 0 or -1 leaves it to the system", -1),
        100_000_000,
        aliases=("socket.receive.buffer.bytes",),
        client="receive.buffer.bytes",
    ),
    number(
        *("send.buffer.bytes", 0, "SO_SNDBUF; 0 or -1 leaves it to the system", -1),
        100_000_000,
        aliases=("socket.send.buffer.bytes",),
        client="send.buffer.bytes",
    ),
    number(
        *("statistics.interval.ms", 0, "how often stats_cb is called; 0: never"),
        *(0, 86_400_000),
    ),
    number("log_level", 6, "the least severe log records, as a level of syslog", 0, 7),
    callback("error_cb", "called with a KafkaError that belongs to no call"),
    callback("stats_cb", "called with metrics as JSON, every statistics.interval.ms"),
    callback("throttle_cb", "called with a ThrottleEvent if a broker delays a response"),
    callback("oauth_cb", "called for a token, with sasl.oauthbearer.config"),
    Row("logger", Kind.ANY, None, "a logging.Logger that gets the client's log records"),
    Row(
        *("interceptor.classes", Kind.ANY, None),
        "a list of objects with on_send, on_acknowledgement, on_consume or on_commit",
        clients=("producer", "consumer"),
    ),
)

_ALWAYS = "klog's client always works in this way"
_OLD = "librdkafka itself no longer uses it"
_OLD_BROKERS = "every broker since Kafka 0.10 says which requests it serves"
_JVM = "the setting belongs to the JVM"
_OF_THREADS = "the setting belongs to librdkafka's own threads"

_WITHOUT_EFFECT: tuple[Row, ...] = (
    *ignored(
        _OLD,
        number("topic.metadata.refresh.fast.cnt", 10, "", 0, 1_000),
        number("socket.blocking.max.ms", 1_000, "", 1, 60_000),
        number("reconnect.backoff.jitter.ms", 0, "", 0, 3_600_000),
        number("metadata.request.timeout.ms", 60_000, "", 10, 900_000),
    ),
    *ignored(
        _OLD_BROKERS,
        flag("api.version.request", True, ""),
        number("api.version.request.timeout.ms", 10_000, "", 1, 300_000),
        number("api.version.fallback.ms", 0, "", 0, 604_800_000),
        text("broker.version.fallback", "0.10.0", ""),
    ),
    *ignored(
        _OF_THREADS,
        flag("log.queue", False, ""),
        flag("log.thread.name", True, ""),
        flag("enable_sasl_queue", False, ""),
        number("enabled_events", 0, ""),
        number("internal.termination.signal", 0, "", 0, 128),
    ),
    *ignored(
        _ALWAYS,
        flag("socket.nagle.disable", True, ""),
        flag("topic.metadata.refresh.sparse", True, ""),
        flag("enable.sparse.connections", True, ""),
    ),
    *ignored(
        "klog's client uses the bootstrap servers again as soon as no known broker answers",
        text("metadata.recovery.strategy", "rebootstrap", "", choices=("none", "rebootstrap")),
        number("metadata.recovery.rebootstrap.trigger.ms", 300_000, ""),
    ),
    *ignored(
        "retry.backoff.ms is used",
        number("topic.metadata.refresh.fast.interval.ms", 100, "", 1, 60_000),
    ),
    *ignored(
        "a connection is closed at the first request that times out",
        number("socket.max.fails", 1, "", 0, 1_000_000),
    ),
    *ignored(
        "the system decides on keep-alive packets", flag("socket.keepalive.enable", False, "")
    ),
    *ignored(
        "the system's resolver caches addresses",
        number("broker.address.ttl", 1_000, "", 0, 86_400_000),
    ),
    *ignored(
        "all addresses of a name are tried",
        text(
            *("client.dns.lookup", "use_all_dns_ips", ""),
            choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        ),
        text("broker.address.family", "any", "", choices=("any", "v4", "v6")),
    ),
    *ignored("lost connections are always logged", flag("log.connection.close", True, "")),
    *ignored("the client pushes no metrics to brokers", flag("enable.metrics.push", True, "")),
    *ignored("no topic is hidden from the client", text("topic.blacklist", None, "")),
    *ignored("the operating system seeds the random numbers", flag("enable.random.seed", True, "")),
    *ignored(
        "the levels of the loggers of pyspark_klog decide what is logged",
        Row("debug", Kind.LIST, None, choices=DEBUG_CONTEXTS),
    ),
    *ignored(
        "the client has each of these features",
        Row("builtin.features", Kind.LIST, None, choices=FEATURES),
    ),
    *ignored(
        "a response may have up to 1 GiB",
        number("receive.message.max.bytes", 100_000_000, "", 1_000),
    ),
    *ignored("values are copied once", number("message.copy.max.bytes", 65_535, "", 0, 10**9)),
    *ignored_texts(
        _JVM,
        *("auto.include.jmx.reporter", "config.providers", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        "security.providers",
    ),
    *ignored_texts(
        "socket.connection.setup.timeout.ms is used for every attempt",
        "socket.connection.setup.timeout.max.ms",
    ),
    *ignored_texts("unused topics cost nothing", "metadata.max.idle.ms"),
    *ignored_texts("the client connects to brokers, not to controllers", "bootstrap.controllers"),
    *refused("the client loads no plugins", text("plugin.library.paths", "", "")),
    *refused(
        "pyspark_klog.testing has brokers for tests",
        number("test.mock.num.brokers", 0, "", 0, 10_000),
        number("test.mock.broker.rtt", 0, "", 0, 3_600_000),
    ),
)

CONNECTION: tuple[Row, ...] = (*_ACTING, *_WITHOUT_EFFECT)
