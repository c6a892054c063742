"""The few functions of librdkafka that the load generator calls, through ctypes."""

import ctypes
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks._load.jobs import LoadFailed

_PRODUCER = 0
_CONSUMER = 1
_CONF_OK = 0
_TEXT_BYTES = 512


class LibraryMissing(Exception):
    """No librdkafka was found; the text names the places that were searched."""


class ClientFailed(LoadFailed):
    """librdkafka returned an error; the text is its own."""


@cache
def library_path() -> Path:
    """The path of the librdkafka in the confluent-kafka wheel."""
    found = importlib.util.find_spec("confluent_kafka")
    if found is None or found.origin is None:
        raise LibraryMissing("confluent-kafka is not installed, and librdkafka comes with it")
    packages = Path(found.origin).parents[1]
    folders = (packages / "confluent_kafka.libs", packages / "confluent_kafka" / ".dylibs")
    for folder in folders:
        for path in sorted(folder.glob("librdkafka*")):
            return path
    raise LibraryMissing(f"no librdkafka in {' or '.join(str(folder) for folder in folders)}")


@cache
def _library() -> Any:
    library = ctypes.CDLL(str(library_path()))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (ctypes.c_int, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_new": (pointer, [ctypes.c_int, pointer, text, ctypes.c_size_t]),
        "rd_kafka_topic_new": (pointer, [pointer, text, pointer]),
        "rd_kafka_topic_destroy": (None, [pointer]),
        "rd_kafka_consume_start": (ctypes.c_int, [pointer, ctypes.c_int32, ctypes.c_int64]),
        "rd_kafka_consume_stop": (ctypes.c_int, [pointer, ctypes.c_int32]),
        "rd_kafka_flush": (ctypes.c_int, [pointer, ctypes.c_int]),
        "rd_kafka_outq_len": (ctypes.c_int, [pointer]),
        "rd_kafka_fatal_error": (ctypes.c_int, [pointer, text, ctypes.c_size_t]),
        "rd_kafka_last_error": (ctypes.c_int, []),
        "rd_kafka_err2str": (text, [ctypes.c_int]),
        "rd_kafka_version_str": (text, []),
        "rd_kafka_destroy": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def version() -> str:
    """librdkafka's version."""
    return str(_library().rd_kafka_version_str().decode())


class Client:
    """A client for one topic; a kernel passes the address ``topic`` to librdkafka."""

    def __init__(self, kind: int, settings: Mapping[str, str], topic: str) -> None:
        self._library = _library()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        conf = self._library.rd_kafka_conf_new()
        for name, value in settings.items():
            done = self._library.rd_kafka_conf_set(
                conf, name.encode(), value.encode(), text, _TEXT_BYTES
            )
            if done != _CONF_OK:
                raise ClientFailed(text.value.decode())
        self._client = self._library.rd_kafka_new(kind, conf, text, _TEXT_BYTES)
        if not self._client:
            raise ClientFailed(text.value.decode())
        self.topic: int = self._library.rd_kafka_topic_new(self._client, topic.encode(), None)

    def close(self) -> None:
        """Free the client, with a producer's undelivered messages."""
        self._library.rd_kafka_topic_destroy(self.topic)
        self._library.rd_kafka_destroy(self._client)

    def last_error(self) -> str:
        """The reason of this thread's last error."""
        return str(self._library.rd_kafka_err2str(self._library.rd_kafka_last_error()).decode())


class Producer(Client):
    """A producer for one topic."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        super().__init__(_PRODUCER, settings, topic)

    def flush(self, timeout_ms: int) -> None:
        """Wait until all messages are delivered; ClientFailed if ``timeout_ms`` is over before."""
        error = self._library.rd_kafka_flush(self._client, timeout_ms)
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        if self._library.rd_kafka_fatal_error(self._client, text, _TEXT_BYTES):
            raise ClientFailed(text.value.decode())
        if error:
            left = self._library.rd_kafka_outq_len(self._client)
            name = self._library.rd_kafka_err2str(error).decode()
            raise ClientFailed(f"{name}: {left} messages are not delivered")


class Consumer(Client):
    """A consumer of one partition, from its first offset on."""

    def __init__(self, settings: Mapping[str, str], topic: str, partition: int) -> None:
        super().__init__(_CONSUMER, settings, topic)
        self._partition = partition
        if self._library.rd_kafka_consume_start(self.topic, partition, 0) != 0:
            raise ClientFailed(self.last_error())

    def close(self) -> None:
        self._library.rd_kafka_consume_stop(self.topic, self._partition)
        super().close()
