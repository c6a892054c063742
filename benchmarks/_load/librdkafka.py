"""The few functions of librdkafka that the load generator calls, through ctypes."""

import ctypes
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_PRODUCER = 0
_CONF_OK = 0
_TEXT_BYTES = 512


class LibraryMissing(Exception):
    """No librdkafka was found; the text names the places that were searched."""


class ProduceFailed(Exception):
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


class Producer:
    """A producer for one topic; a kernel passes the address ``topic`` to librdkafka."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        self._library = _library()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        conf = self._library.rd_kafka_conf_new()
        for name, value in settings.items():
            done = self._library.rd_kafka_conf_set(
                conf, name.encode(), value.encode(), text, _TEXT_BYTES
            )
            if done != _CONF_OK:
                raise ProduceFailed(text.value.decode())
        self._producer = self._library.rd_kafka_new(_PRODUCER, conf, text, _TEXT_BYTES)
        if not self._producer:
            raise ProduceFailed(text.value.decode())
        self.topic: int = self._library.rd_kafka_topic_new(self._producer, topic.encode(), None)

    def flush(self, timeout_ms: int) -> None:
        """Wait until all messages are delivered; ProduceFailed if ``timeout_ms`` is over before."""
        error = self._library.rd_kafka_flush(self._producer, timeout_ms)
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        if self._library.rd_kafka_fatal_error(self._producer, text, _TEXT_BYTES):
            raise ProduceFailed(text.value.decode())
        if error:
            left = self._library.rd_kafka_outq_len(self._producer)
            name = self._library.rd_kafka_err2str(error).decode()
            raise ProduceFailed(f"{name}: {left} messages are not delivered")

    def last_error(self) -> str:
        """The reason why librdkafka has just refused a message of this thread."""
        return str(self._library.rd_kafka_err2str(self._library.rd_kafka_last_error()).decode())

    def close(self) -> None:
        """Free the producer, with its undelivered messages."""
        self._library.rd_kafka_topic_destroy(self.topic)
        self._library.rd_kafka_destroy(self._producer)
