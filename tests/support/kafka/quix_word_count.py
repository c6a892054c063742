"""A word count with Quix Streams, exactly once, in an environment of its own: tests kill it.

    python quix_word_count.py SERVERS STATE_DIRECTORY

Does the work of `WordCount.java`: lines of the topic "lines", the words grouped by way of a
repartition topic, a store with a changelog, every change to the topic "counts". The program ends
with its standard input.
"""

import os
import sys
import threading
from typing import Any

from quixstreams import Application


def count(_: str, state: Any) -> str:
    number = state.get("count", 0) + 1
    state.set("count", number)
    return str(number)


def end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main(servers: str, state: str) -> None:
    threading.Thread(target=end_with_input, daemon=True).start()
    application = Application(
        broker_address=servers,
        consumer_group="quix",
        state_dir=state,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.2,
        # Let the transaction of a killed process time out soon.
        consumer_extra_config={"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500},
        producer_extra_config={"transaction.timeout.ms": 5_000},
    )
    lines = application.topic("lines", key_deserializer="str", value_deserializer="str")
    counts = application.topic("counts", key_serializer="str", value_serializer="str")
    words = application.dataframe(lines).apply(lambda line: line.split(" "), expand=True)
    words = words.group_by(
        lambda word: word,
        name="word",
        key_serializer="str",
        key_deserializer="str",
        value_serializer="str",
        value_deserializer="str",
    )
    words.apply(count, stateful=True).to_topic(counts)
    application.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
