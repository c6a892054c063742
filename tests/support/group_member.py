"""A member of a consumer group, as kafka-python makes one."""

from typing import Any

from kafka import KafkaConsumer


def joined_member(servers: str, topic: str, group: str, **settings: Any) -> KafkaConsumer:
    """A consumer that has joined the group and holds its share of the topic, which has records.

    One poll that ends with the first record: kafka-python 3.0.12 loses a join during which a short
    poll's time ran out, if it was its second one (the first came before the topic's metadata). It
    then takes itself for joined, without partitions and heartbeats, for ever.
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
