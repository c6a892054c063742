"""Changes of Kafka 4.x (up to 4.3) in the settings that klog has from Kafka 3.9.1."""

#: broker's setting -> what is different in 4.x
BROKER_CHANGES = {
    "advertised.listeners": "The type is list.",
    "broker.id.generation.enable": "Dropped: there is no ZooKeeper.",
    "controlled.shutdown.max.retries": "Dropped: a broker asks until it may stop.",
    "controlled.shutdown.retry.backoff.ms": "Dropped: a broker asks until it may stop.",
    "controller.listener.names": "The type is list, and it must be set.",
    "inter.broker.protocol.version": "Dropped: metadata.version is a feature of the cluster.",
    "listeners": "The type is list.",
    "log.dir": "The type is list.",
    "log.dirs": "The type is list.",
    "log.message.downconversion.enable": "Dropped: 4.x does not convert down.",
    "log.message.timestamp.after.max.ms": "The default is 3600000 (one hour).",
    "log.message.timestamp.difference.max.ms": "Dropped for the two newer names.",
    "log.segment.bytes": "The minimum is 1048576.",
    "node.id": "It must be set.",
    "num.recovery.threads.per.data.dir": "The default is 2.",
    "reserved.broker.max.id": "Dropped: there is no ZooKeeper.",
    "zookeeper.connect": "Dropped: there is no ZooKeeper.",
    "zookeeper.connection.timeout.ms": "Dropped: there is no ZooKeeper.",
    "zookeeper.max.in.flight.requests": "Dropped: there is no ZooKeeper.",
    "zookeeper.session.timeout.ms": "Dropped: there is no ZooKeeper.",
}

#: topic's setting -> what is different in 4.x
TOPIC_CHANGES = {
    "message.downconversion.enable": "Dropped: 4.x does not convert down.",
    "message.format.version": "Dropped: 4.x knows one format.",
    "message.timestamp.after.max.ms": "The default is 3600000 (one hour).",
    "message.timestamp.difference.max.ms": "Dropped for the two newer names.",
    "segment.bytes": "The minimum is 1048576.",
}
