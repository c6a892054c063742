"""Settings without effect in klog that Kafka 4.3.1 can change in a running broker.

klog accepts a change of such a setting, unless the setting is a secret or strict.configs is true.
settings_without_effect.py lists all settings without effect. The settings of the keystore and the
truststore (such as ssl.keystore.location) are not listed here, because Kafka accepts a change of
them only if the prefix of a listener (``listener.name.NAME.``) stands before the setting's name.
"""

#: Settings that Kafka can change for all brokers together, or for a single broker.
CHANGEABLE_FOR_ALL = frozenset(
    (
        "background.threads",
        "config.providers",
        "follower.fetch.last.tiered.offset.enable",
        "follower.replication.throttled.rate",
        "group.consumer.assignment.interval.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "leader.replication.throttled.rate",
        "log.cleaner.io.buffer.size",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "max.connection.creation.rate",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.replica.fetchers",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "share.coordinator.cached.buffer.max.bytes",
        "transaction.partition.verification.enable",
    )
)
#: Settings that Kafka can change only for a single broker.
CHANGEABLE_FOR_ONE = frozenset(
    (
        "cordoned.log.dirs",
        "principal.builder.class",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.mechanism.inter.broker.protocol",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    )
)
#: Settings of one listener (named ``listener.name.NAME.SETTING``) that Kafka can change for all
#: brokers together. All other settings of a listener can be changed only for a single broker.
CHANGEABLE_LISTENER_SETTINGS = frozenset(
    ("max.connection.creation.rate", "max.connections", "num.network.threads")
)
