"""Draws the image of docs/command-line.md: `klog`'s output in a terminal, from a running broker.

`./dev python -m tests.support.cli.command_images docs/images` draws it again.
"""

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import confluent_kafka
from rich.console import Console
from rich.text import Text

from pyspark_klog.client.admin.topics import Admin, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.client.group_member import joined_member

NAME = "klog-commands.svg"
COMMANDS = (
    "topics list",
    "topics describe orders",
    "groups list",
    "groups describe billing",
    "groups reset-offsets audit --topic orders --by-duration PT1H",
    "configs describe --topic orders",
)
_COLUMNS = 112
_FACES = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def main(folder: Path) -> None:
    """Start a broker, fill it, and draw what the commands print."""
    with tempfile.TemporaryDirectory(prefix="klog-") as data:
        settings = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
        with BrokerProcess(Path(data) / "d", settings) as broker:
            servers = broker.bootstrap_servers
            fill(servers)
            member = joined_member(servers, "orders", "billing", client_id="bill")
            shown = [(command, printed(command, servers)) for command in COMMANDS]
            member.close()
    (folder / NAME).write_text(draw(shown), encoding="utf-8")


def fill(servers: str) -> None:
    """Topics with records, and groups that have read some."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("orders", 2, 1, {"retention.ms": "3600000"})])
        admin.create_topics([NewTopic("payments", 1, 1)])
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(3_000):
        # Half of the records are two hours old.
        at_ms = int((time.time() - 7_200 * (number < 1_500)) * 1000)
        for topic, partition in (("orders", number % 2), ("payments", 0)):
            producer.produce(topic, b"x" * 100, partition=partition, timestamp=at_ms)
    assert producer.flush(30) == 0
    for group, offset in (("billing", 1_480), ("audit", 12)):
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
        offsets = [confluent_kafka.TopicPartition("orders", n, offset + n) for n in range(2)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()


def printed(command: str, servers: str) -> str:
    """Return `klog`'s output on a terminal of _COLUMNS columns, with its colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(_COLUMNS), "TERM": "xterm-256color"}
    code = "from klog_broker.cli import main; main()"
    words = [sys.executable, "-c", code, *command.split(), "--bootstrap-server", servers]
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.STDOUT, env=environment) as done:
        os.close(theirs)
        found = bytearray()
        try:
            while some := os.read(ours, 65_536):
                found += some
        except OSError:
            pass  # On Linux, reading fails once the process has closed its end of the terminal.
    os.close(ours)
    assert done.returncode == 0, found.decode()
    return found.decode().replace("\r\n", "\n")


def draw(shown: list[tuple[str, str]]) -> str:
    """Return an SVG of a terminal, which is shown in the reader's own fonts."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO())
    for number, (command, text) in enumerate(shown):
        console.print(Text(f"{chr(10) * bool(number)}$ klog {command}", style="bold green"))
        console.print(Text.from_ansi(text))
    return _FACES.sub("", console.export_svg(title="klog"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
