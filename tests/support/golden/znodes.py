"""Make golden znodes again: python -m tests.support.golden.znodes [FOLDER].

Apache Kafka 3.9.1 makes all three files (needs Java 17, and its jars where tests/support/peers.py
looks): cluster.json holds the znodes of a running cluster of three brokers
(tests/support/znodes/scenario.py); written.json holds what Kafka's classes write for znodes that
are rare in such a cluster; read.json holds how they read texts by other writers or older releases
(tests/support/znodes/texts.py). All data are stored as text. The files are committed, so tests need
neither Java nor jars.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from kazoo.client import KazooClient

from pyspark_klog.testing.zookeeper import ZooKeeper
from tests.support.kafka.zookeeper_cluster import kafka_cluster
from tests.support.peers import OLDEST_KAFKA, java, kafka_jars
from tests.support.znodes.scenario import OF_BROKERS, fill, leave_unfinished, znodes
from tests.support.znodes.texts import TEXTS

GOLDEN_DIR = Path(__file__).parents[2] / "golden" / "znodes"
_PROGRAM = Path(__file__).parents[1] / "java" / "JavaZnodes.java"
_MAKER = f"Apache Kafka {OLDEST_KAFKA}"


def of_a_cluster() -> list[dict[str, object]]:
    """The znodes of a running cluster, with work that cannot end."""
    with ZooKeeper() as server:
        client = KazooClient(f"{server.address}/kafka", timeout=60.0)
        try:
            with kafka_cluster(f"{server.address}/kafka", of_broker=OF_BROKERS) as brokers:
                client.start()
                at_first = {each.path: each for each in znodes(client, "/brokers/ids")}
                fill(brokers[0])
                leave_unfinished(brokers, client)
                found = {each.path: each for each in znodes(client)}
                # The controller does not stop on SIGTERM either, while its work cannot end.
                brokers[0].kill()
                brokers[1].kill()
        finally:
            client.stop()
            client.close()
    return [
        {"path": each.path, "data": each.data.decode(), "ephemeral": each.ephemeral}
        for _, each in sorted((at_first | found).items())
    ]


def by_kafkas_classes(*arguments: str) -> list[str]:
    """The lines that JavaZnodes.java prints."""
    command = [java(), "-cp", f"{kafka_jars(OLDEST_KAFKA)}/*", str(_PROGRAM), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[
        :-1
    ]


def written() -> list[dict[str, object]]:
    """Return paths and data of the znodes that Kafka's classes write."""
    rows = [line.split(" ") for line in by_kafkas_classes()]
    return [{"path": path, "data": bytes.fromhex(data).decode()} for path, data in rows]


def read() -> list[dict[str, object]]:
    """Return what Kafka's classes read from each of `TEXTS`."""
    with tempfile.NamedTemporaryFile("w+", suffix=".txt") as file:
        file.writelines(f"{kind} {text.encode().hex()}\n" for kind, text in TEXTS)
        file.flush()
        found = by_kafkas_classes(file.name)
    rows = zip(TEXTS, found, strict=True)
    return [{"kind": kind, "data": text, "kafka": line} for (kind, text), line in rows]


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, made_by, rows in (
        ("written", f"{_MAKER}'s own classes (JavaZnodes.java)", written()),
        ("read", f"{_MAKER}'s own classes (JavaZnodes.java)", read()),
        ("cluster", f"a cluster of three brokers of {_MAKER}", of_a_cluster()),
    ):
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
        text = f'{{\n "made_by": {json.dumps(made_by)},\n "znodes": [\n{lines}\n ]\n}}\n'
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        print(f"{len(rows)} znodes in {name}.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN_DIR)
