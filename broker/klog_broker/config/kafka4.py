"""What Kafka 4.x (up to 4.3) changed in the settings that klog has from Kafka 3.9.1."""

#: broker's setting -> what is different in 4.x
BROKER_CHANGES = {
    "advertised.listeners": "The type is list.",
    "controller.listener.names": "The type is list, and it must be set.",
    "listeners": "The type is list.",
    "log.dir": "The type is list.",
    "log.dirs": "The type is list.",
    "log.message.downconversion.enable": "Dropped: 4.x does not convert down.",
    "log.message.timestamp.after.max.ms": "The default is 3600000 (one hour).",
    "log.message.timestamp.difference.max.ms": "Dropped for the two newer names.",
    "log.segment.bytes": "The minimum is 1048576.",
    "node.id": "It must be set.",
    "num.recovery.threads.per.data.dir": "The default is 2.",
}

#: topic's setting -> what is different in 4.x
TOPIC_CHANGES = {
    "message.downconversion.enable": "Dropped: 4.x does not convert down.",
    "message.format.version": "Dropped: 4.x knows one format.",
    "message.timestamp.after.max.ms": "The default is 3600000 (one hour).",
    "message.timestamp.difference.max.ms": "Dropped for the two newer names.",
    "segment.bytes": "The minimum is 1048576.",
}
