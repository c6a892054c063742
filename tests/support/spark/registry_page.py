"""The code of docs/schema-registry.md, which tests run with their own addresses and topics."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from tests.support.client.cases import read
from tests.support.repo.documents import ROOT
from tests.support.schema_registry import SchemaRegistry
from tests.support.spark.topics import Topics

_TEXT = (ROOT / "docs" / "schema-registry.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", _TEXT, re.MULTILINE | re.DOTALL)
_RECORDS, READ_AVRO, WRITE_AVRO, _MESSAGES, PROTOBUF, JSON, FROM_AVRO = (
    code for language, code in _BLOCKS if language == "python"
)
"""All Python code of the page."""
[_PROTO] = (code for language, code in _BLOCKS if language == "proto")
_FILES = {"order_records.py": _RECORDS, "order_messages.py": _MESSAGES, "order.proto": _PROTO}
[_PROTOC] = re.findall(r"^python (-m grpc_tools\.protoc .* )order\.proto$", _TEXT, re.MULTILINE)
IMPORTS = WRITE_AVRO.partition("with ")[0]


class RegistryPage:
    """A registry, a broker's topics, and a folder with the files that the page has."""

    def __init__(self, folder: Path, registry: SchemaRegistry, topics: Topics) -> None:
        self.folder = folder
        self.registry = registry
        self.topics = topics
        for name, text in _FILES.items():
            (folder / name).write_text(self._adapted(text, ""), encoding="utf-8")
        self.compile("order.proto")

    def compile(self, name: str) -> None:
        """Make a Python module of a .proto file in the folder."""
        command = [sys.executable, *_PROTOC.split(), name]
        subprocess.run(command, cwd=self.folder, check=True)

    def module(self, name: str) -> Any:
        """Import a module of the folder."""
        importlib.invalidate_caches()
        return importlib.import_module(name)

    def run(self, code: str, topic: str, names: dict[str, Any]) -> None:
        """Run a part of the page with ``topic`` in place of its topic `orders`."""
        exec(compile(self._adapted(code, topic), "schema-registry.md", "exec"), names)

    def put(self, topic: str, values: Sequence[bytes | None]) -> None:
        """Create a topic with a record for each value; the keys are their numbers."""
        self.topics.create(name=topic)
        self.topics.put(topic, [(b"%d" % number, value) for number, value in enumerate(values)])

    def written(self, topic: str, count: int) -> list[bytes | None]:
        """Return the values of the first records of a topic."""
        with BlockingClient({"bootstrap.servers": self.topics.servers}) as client:
            records = read(client, TopicPartition(topic, 0), 0, count)
        return [None if record.value is None else bytes(record.value) for record in records]

    def _adapted(self, code: str, topic: str) -> str:
        code = code.replace("localhost:9092", self.topics.servers)
        code = code.replace("http://localhost:8081", self.registry.url)
        # Spark's JVM has begun in another folder.
        code = re.sub(r'"(order\w+\.py)"', rf'"{self.folder}/\1"', code)
        return re.sub(r'"orders\b', f'"{topic}', code)


@contextmanager
def registry_page(folder: Path, topics: Topics) -> Iterator[RegistryPage]:
    """Serve a registry, and let modules in the folder be imported, within a with statement."""
    with SchemaRegistry() as registry:
        loaded = set(sys.modules)
        sys.path.insert(0, str(folder))
        try:
            yield RegistryPage(folder, registry, topics)
        finally:
            sys.path.remove(str(folder))
            for path in folder.glob("*.py"):
                if path.stem not in loaded:
                    sys.modules.pop(path.stem, None)
