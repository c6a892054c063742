"""Make the golden replica placements again: python -m tests.support.golden.placement.

Kafka 3.9.1's AdminUtils places the replicas; no code of klog is used.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

from tests.support.peers import OLDEST_KAFKA
from tests.support.protocol.kafka_definitions import run_java

GOLDEN_FILE = Path(__file__).parents[2] / "golden" / "placement.json"


def placement_cases(count: int, random: Random) -> list[dict[str, Any]]:
    """Made-up inputs: brokers (with racks or without), partition and replica counts, start."""
    cases = []
    for _ in range(count):
        size = random.randint(1, 7)
        racks = random.choice((0, 1, 2, 3, size))
        brokers = {
            broker: f"rack-{random.randrange(racks)}" if racks else None
            for broker in sorted(random.sample(range(12), size))
        }
        cases.append(
            {
                "racks": brokers,
                "partitions": random.randint(1, 9),
                "replication_factor": random.randint(1, size),
                "start": random.randrange(size),
                "first_partition": random.choice((0, 0, 1, size, random.randrange(30))),
            }
        )
    return cases


def kafkas_placements(cases: list[dict[str, Any]]) -> list[list[list[int]]]:
    """The replicas by partition, for each case."""
    lines = []
    for case in cases:
        brokers = ",".join(
            str(broker) if rack is None else f"{broker}:{rack}"
            for broker, rack in case["racks"].items()
        )
        words = ("partitions", "replication_factor", "start", "first_partition")
        lines.append(" ".join(map(str, ("place", *(case[word] for word in words), brokers))))
    answers = run_java(OLDEST_KAFKA, "ControllerAnswers.java", "\n".join(lines))
    return [
        [[int(broker) for broker in row.split(",")] for row in answer.split(";")]
        for answer in answers
    ]


if __name__ == "__main__":
    asked = placement_cases(60, Random(12))
    rows = [
        json.dumps(case | {"placed": placed})
        for case, placed in zip(asked, kafkas_placements(asked), strict=True)
    ]
    head = f'{{"written_by": "Apache Kafka {OLDEST_KAFKA}", "cases": [\n'
    GOLDEN_FILE.write_text(head + ",\n".join(rows) + "\n]}\n", encoding="utf-8")
    print(f"{len(rows)} placements by Apache Kafka {OLDEST_KAFKA}")
