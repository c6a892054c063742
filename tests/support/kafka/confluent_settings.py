"""Ask confluent_kafka about settings: which names it has, and which values it accepts."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient

from pyspark_klog import kafka
from pyspark_klog.kafka._settings import ClientKind, KafkaSettings, read_settings

_NO_SETTING = "no.such.setting"
_UNKNOWN = "No such configuration property"
_NOT_FROM_A_DICT = ("must be set through dedicated", "not settable", "only valid on Windows")
_MERGED = ("group.id", "metadata.broker.list")
"""Names that a compiler has merged with longer texts, so that the library does not show them."""
_CLIENTS: dict[str, Any] = {
    "producer": confluent_kafka.Producer,
    "consumer": confluent_kafka.Consumer,
    "admin": AdminClient,
}


def own_settings(kind: ClientKind, settings: Mapping[str, Any] | None = None) -> KafkaSettings:
    """Return klog's settings; a consumer has a group."""
    return read_settings(kind, ({**_group(kind), **(settings or {})},), {})


def _group(kind: str) -> dict[str, str]:
    return {"group.id": "g"} if kind == "consumer" else {}


def own_refusal(kind: ClientKind, settings: Mapping[Any, Any]) -> str:
    """Return the exception's name and text if klog refuses settings, else an empty text."""
    try:
        own_settings(kind, settings)
    except (kafka.KafkaException, TypeError, ValueError) as error:
        return _text(error)
    return ""


def confluent_refusal(kind: ClientKind, settings: Mapping[Any, Any]) -> str:
    """Return the exception's name and text if confluent_kafka refuses settings, else an empty text.
    A client is made, which logs nothing."""
    try:
        client = _CLIENTS[kind]({"log_level": 0, **_group(kind), **settings})
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        return _text(error)
    if kind == "consumer":
        client.close()
    return ""


def refusal_of_value(name: str, value: Any) -> str:
    """Return confluent_kafka's exception for one value, without making a client."""
    # confluent_kafka reads settings in the order of the dict, so that it comes to an unknown one
    # only if it has accepted the ones before.
    refusal = confluent_refusal("producer", {name: value, _NO_SETTING: ""})
    return "" if _NO_SETTING in refusal else refusal


def names_of_confluent() -> list[str]:
    """Return the names of all settings that confluent_kafka takes from a dict."""
    package = Path(confluent_kafka.__file__).parent
    (library,) = (package.parent / "confluent_kafka.libs").glob("librdkafka*")
    texts = re.findall(rb"(?<=\0)[a-z][a-z0-9_.]{2,60}(?=\0)", library.read_bytes())
    candidates = set(_MERGED)
    for text in texts:
        words = text.decode().split(".")
        candidates |= {".".join(words[at:]) for at in range(len(words))}
    return sorted(name for name in candidates - {""} if _is_setting(name))


def _is_setting(name: str) -> bool:
    refusal = refusal_of_value(name, "\x01")
    return _UNKNOWN not in refusal and not any(each in refusal for each in _NOT_FROM_A_DICT)


def _text(error: Exception) -> str:
    reason = error.args[0]
    text = reason.name() if hasattr(reason, "name") else ""
    shown = reason.str() if hasattr(reason, "str") else str(error)
    return f"{type(error).__name__} {text} {shown.strip()}"


def kind_of_refusal(refusal: str) -> str:
    """Return the exception's name, and the error's name if it has one."""
    return " ".join(refusal.split(" ")[:2])
