"""A member of a consumer group, as kafka-python makes one."""

from typing import Any

from kafka import KafkaConsumer


def joined_member(servers: str, topic: str, group: str, **settings: Any) -> KafkaConsumer:
    """Return a consumer that has joined the group and owns its partitions of a topic with records.

    A single long poll, which ends with the first record, makes it join. kafka-python 3.0.12 loses
    its second join (the first precedes the topic's metadata) if a short poll's time runs out during
    it. The client then considers itself joined, without partitions and heartbeats, for ever.
    """
    member = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )
    assert member.poll(60_000), f"nothing was read from {topic} within a minute"
    return member
