"""Bounds of settings that klog has and Kafka's definitions lack, or word in another way."""

DIFFERENT_BOUNDS = {
    "inter.broker.protocol.version": "from 3.5 on, and only in a cluster",
    "controlled.shutdown.max.retries": "Kafka takes a negative number for none",
    "controlled.shutdown.retry.backoff.ms": "Kafka takes any number; nobody waits for -1 ms",
    "controller.socket.timeout.ms": "Kafka takes any number: with 0 no answer comes in time",
    "replica.lag.time.max.ms": "Kafka takes any number: with 0 nobody stays in sync",
    "offsets.topic.compression.codec": "Kafka refuses other numbers when it first uses one",
    "message.format.version": "the same releases, worded otherwise",
    "leader.replication.throttled.replicas": "the same form, worded otherwise",
    "follower.replication.throttled.replicas": "the same form, worded otherwise",
}
