"""Made-up batches of a controller's requests, given to Kafka's controller and to klog's.

`python -m tests.support.golden.controller_batches` asks Kafka 3.9.1 for the golden requests again.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from klog_broker.config import Listener
from klog_broker.controller.decisions.context import ControllerContext, Leadership, RegisteredBroker
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.zookeeper.request_batch import (
    BrokerRequest,
    ControllerRequest,
    RequestBatch,
)
from klog_broker.metadata.image import BrokerRegistration
from pyspark_klog.ids import UUID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.protocol.codec import decode_message
from pyspark_klog.protocol.registry import find_api
from tests.support.peers import OLDEST_KAFKA
from tests.support.protocol.kafka_definitions import run_java

GOLDEN_FILE = Path(__file__).parents[2] / "golden" / "controller_batches.json"
CONTROLLER_ID = BrokerId(0)
LISTENER = "PLAINTEXT"

Scenario = list[str]
"""The lines of one batch, as ControllerBatches.java has them."""


def scenario(random: Random) -> Scenario:
    """A made-up cluster, and a batch of role changes in it."""
    lines = []
    ids = range(1, 5)
    registered = [broker for broker in ids if random.random() < 0.8]
    for broker in registered:
        rack = random.choice(("-", "rack"))
        lines.append(
            f"broker {broker} {random.randrange(1000)} host-{broker} {9090 + broker} {rack}"
        )
        if random.random() < 0.2:
            lines.append(f"leaving {broker}")
    partitions = []
    for number, name in enumerate(("a", "b")):
        topic_id = base64.urlsafe_b64encode(bytes([number + 1] * 16)).decode().rstrip("=")
        lines.append(f"topic {name} {topic_id}")
        for partition in range(random.randint(1, 3)):
            replicas = random.sample(list(ids), random.randint(1, 3))
            in_sync = random.sample(replicas, random.randint(1, len(replicas)))
            lines.append(f"assign {name} {partition} {_listed(replicas)}")
            if random.random() < 0.15:
                partitions.append((name, partition, replicas, False))
                continue
            leader = random.choice((*in_sync, -1))
            epochs = (random.randrange(9), _listed(in_sync), random.randrange(2))
            more = (random.randrange(9), random.randrange(9))
            words = ("leader", name, partition, leader, *epochs, *more)
            lines.append(" ".join(map(str, words)))
            partitions.append((name, partition, replicas, True))
        if random.random() < 0.2:
            lines.append(f"deleted {name}")
    for _ in range(random.randint(1, 6)):
        name, partition, replicas, has_leader = random.choice(partitions)
        brokers = _listed(random.sample(replicas, random.randint(1, len(replicas))))
        kind = random.choice(("lead", "lead", "stop", "tell"))
        if kind == "tell":
            told = _listed(random.sample(list(ids), random.randint(1, 4)))
            which = random.choice((f"{name} {partition}", "- -"))
            lines.append(f"tell {told} {which}")
        elif kind == "stop" or has_leader:
            lines.append(f"{kind} {name} {partition} {brokers} {random.randrange(2)}")
    lines.append(f"send {random.randrange(1, 9)}")
    return lines


def kafkas_requests(scenarios: Sequence[Scenario]) -> list[list[str]]:
    """Return Kafka's controller's requests by scenario, each as "BROKER API_KEY VERSION HEX"."""
    text = "\n".join(line for lines in scenarios for line in lines)
    found: list[list[str]] = [[]]
    for line in run_java(OLDEST_KAFKA, "ControllerBatches.java", text):
        if line == "end":
            found.append([])
        else:
            found[-1].append(line)
    return found[:-1]


def klogs_requests(lines: Scenario) -> list[BrokerRequest]:
    """The requests of klog's controller."""
    context = ControllerContext()
    batch: RequestBatch | None = None
    commands = [line.split(" ") for line in lines]
    controller_epoch = int(commands[-1][1])
    for words in commands:
        match words:
            case ["broker", broker, epoch, host, port, rack]:
                endpoint = Listener(LISTENER, "PLAINTEXT", host, int(port))
                registration = BrokerRegistration(
                    BrokerId(int(broker)), (endpoint,), None if rack == "-" else rack
                )
                context.put_broker(RegisteredBroker(registration, int(epoch)))
            case ["leaving", broker]:
                context.begin_shutdown(BrokerId(int(broker)))
            case ["topic", name, topic_id]:
                context.put_topic(
                    name, TopicId(UUID(bytes=base64.urlsafe_b64decode(topic_id + "==")))
                )
            case ["deleted", name]:
                context.queue_deletion(name)
            case ["assign", name, number, replicas]:
                context.assign(TopicPartition(name, int(number)), _ids(replicas))
            case ["leader", name, number, leader, epoch, in_sync, recovering, controller, version]:
                state = LeaderAndIsr(
                    BrokerId(int(leader)),
                    LeaderEpoch(int(epoch)),
                    _ids(in_sync),
                    recovering == "1",
                )
                known = Leadership(state, int(controller), int(version), 0)
                context.put_leadership(TopicPartition(name, int(number)), known)
            case ["send", _]:
                pass
            case _:
                batch = batch or RequestBatch(
                    context,
                    controller_id=CONTROLLER_ID,
                    controller_epoch=controller_epoch,
                    listener=LISTENER,
                )
                _order(batch, words)
    return [] if batch is None else batch.requests()


def _order(batch: RequestBatch, words: list[str]) -> None:
    match words:
        case ["lead", name, number, brokers, is_new]:
            partition = TopicPartition(name, int(number))
            batch.add_leader_and_isr(partition, _ids(brokers), is_new=is_new == "1")
        case ["stop", name, number, brokers, deletes]:
            partition = TopicPartition(name, int(number))
            batch.add_stop_replica(partition, _ids(brokers), deletes=deletes == "1")
        case ["tell", brokers, name, number]:
            batch.add_update_metadata(
                _ids(brokers), () if name == "-" else (TopicPartition(name, int(number)),)
            )
        case _:
            raise AssertionError(words)


def decoded(line: str) -> tuple[int, ControllerRequest]:
    """The broker and the request of a line of Kafka's."""
    broker, key, version, data = line.split(" ")
    message, _ = decode_message(find_api(int(key)).request, int(version), bytes.fromhex(data))
    return int(broker), message  # type: ignore[return-value]


def sorted_request(request: ControllerRequest) -> ControllerRequest:
    """The same request with its lists sorted: Kafka has them in the order of its hash tables."""
    request.topic_states.sort(key=lambda topic: topic.topic_name)
    for topic in request.topic_states:
        topic.partition_states.sort(key=lambda state: state.partition_index)
    if hasattr(request, "live_leaders"):
        request.live_leaders.sort(key=lambda each: each.broker_id)
    if hasattr(request, "live_brokers"):
        request.live_brokers.sort(key=lambda each: each.id)
    return request


def by_broker(
    orders: Sequence[tuple[int, ControllerRequest]],
) -> dict[int, list[ControllerRequest]]:
    """Return each broker's requests, in order."""
    found: dict[int, list[ControllerRequest]] = {}
    for broker, request in orders:
        found.setdefault(broker, []).append(sorted_request(request))
    return found


def _listed(items: Sequence[int]) -> str:
    return ",".join(map(str, items)) or "-"


def _ids(words: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(word)) for word in words.split(",")) if words != "-" else ()


if __name__ == "__main__":
    chance = Random(7)
    asked = [scenario(chance) for _ in range(25)]
    rows = [
        json.dumps({"batch": lines, "requests": requests})
        for lines, requests in zip(asked, kafkas_requests(asked), strict=True)
    ]
    head = f'{{"written_by": "Apache Kafka {OLDEST_KAFKA}", "cases": [\n'
    GOLDEN_FILE.write_text(head + ",\n".join(rows) + "\n]}\n", encoding="utf-8")
    print(f"{len(rows)} batches by Apache Kafka {OLDEST_KAFKA}")
