"""Read the value of one setting as confluent_kafka does, but refuse rubbish after a number."""

import math
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.transport.addresses import read_addresses
from pyspark_klog.kafka._consumer_rows import ASSIGNORS, COOPERATIVE
from pyspark_klog.kafka._errors import KafkaError, KafkaException
from pyspark_klog.kafka._producer_rows import ALL_REPLICAS, PARTITIONERS
from pyspark_klog.kafka._setting_types import Kind, Row
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.user_functions import java_class, parse_user_function

_PORT = 9092
_BLANKS = " \t\n\r\f\v"
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,4})?", re.ASCII | re.I)
_MOST_DIGITS = 40
_DURATION = re.compile(
    r"by_duration:P(?=\d|T\d)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.ASCII | re.I
)
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")

_JAVA_PRODUCER = "org.apache.kafka.clients.producer."
_JAVA_PARTITIONERS = {
    f"{_JAVA_PRODUCER}internals.DefaultPartitioner": "murmur2_random",
    f"{_JAVA_PRODUCER}RoundRobinPartitioner": f"{_JAVA_PRODUCER}RoundRobinPartitioner",
    f"{_JAVA_PRODUCER}UniformStickyPartitioner": f"{_JAVA_PRODUCER}UniformStickyPartitioner",
}
_JAVA_CONSUMER = "org.apache.kafka.clients.consumer."
_JAVA_ASSIGNORS = {
    f"{_JAVA_CONSUMER}RangeAssignor": "range",
    f"{_JAVA_CONSUMER}RoundRobinAssignor": "roundrobin",
    f"{_JAVA_CONSUMER}StickyAssignor": "sticky",
    f"{_JAVA_CONSUMER}CooperativeStickyAssignor": "cooperative-sticky",
}
_RESETS = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
    **dict.fromkeys(("latest", "largest", "end"), "latest"),
    **dict.fromkeys(("error", "none"), "error"),
}
_INTERCEPTED = ("on_send", "on_acknowledgement", "on_consume", "on_commit")


def invalid_argument(text: str) -> KafkaException:
    """Return the exception of a wrong setting."""
    return KafkaException(KafkaError(KafkaError._INVALID_ARG, text))


def invalid_value(name: str, value: object, expected: str) -> KafkaException:
    """Return the exception of a value, which ends with what was expected."""
    # A program that was written for confluent_kafka may look for the words before the semicolon.
    return invalid_argument(
        f'Invalid value for configuration property "{name}": {value}; expected {expected}'
    )


def read_value(row: Row, name: str, value: object) -> object:
    """Return a checked value of the row's type; None for a text that was not given.

    ``name`` is the name that the caller used.

    :raises KafkaException: _INVALID_ARG, with the setting, the value and what was expected
    :raises TypeError, ValueError: for a callback that cannot be called, as in confluent_kafka
    """
    return (_SPECIAL.get(row.name) or _READERS[row.kind])(_Given(row, name, value))


class _Given(NamedTuple):
    """A value with its row and the name that the caller used."""

    row: Row
    name: str
    value: object

    def refusal(self, expected: str) -> KafkaException:
        """Return the exception that says what was expected."""
        return invalid_value(self.name, self.value, expected)


def _read_number(given: _Given) -> int:
    text = _plain(given.value)
    if isinstance(given.value, float) and given.value.is_integer():
        text = str(int(given.value))
    number = int(text) if _WHOLE.fullmatch(text) and len(text) <= _MOST_DIGITS else None
    if number is None or not given.row.low <= number <= given.row.high:
        raise given.refusal(f"a whole number, {given.row.low} to {given.row.high}")
    return number


def _read_fraction(given: _Given) -> float:
    text = _plain(given.value)
    number = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not given.row.low <= number <= given.row.high:
        raise given.refusal(f"a number, {given.row.low} to {given.row.high}")
    return number


def _read_flag(given: _Given) -> bool:
    text = str(given.value).lower()
    if text not in (*_TRUE, *_FALSE):
        raise given.refusal("true or false")
    return text in _TRUE


def _read_text(given: _Given) -> str | None:
    if given.row.choices:
        return _choose(given.row.choices, given.name, given.value)
    if given.value is None:
        return None
    if not isinstance(given.value, str | int | float | PurePath):
        raise given.refusal(f"text, not {type(given.value).__name__}")
    return str(given.value)


def _read_list(given: _Given) -> tuple[str, ...]:
    words = _words(given.value)
    if not words:
        raise given.refusal(f"one or more of {', '.join(given.row.choices)}")
    # librdkafka reads a leading minus as "without this debug context".
    return tuple(
        _choose(given.row.choices, given.name, word.removeprefix("-"), given.value)
        for word in words
    )


def _read_secret(given: _Given) -> Secret | None:
    if given.value is None or isinstance(given.value, Secret):
        return given.value
    if not isinstance(given.value, str | int):
        raise invalid_value(given.name, "***", f"text, not {type(given.value).__name__}")
    return Secret(str(given.value))


def _read_callback(given: _Given) -> object:
    if callable(given.value):
        return given.value
    text = f"expected {given.name} property as a callable function, not {given.value!r}"
    # confluent_kafka raises a different exception for each of these callbacks.
    if given.name in ("on_delivery", "on_commit"):
        raise given.refusal("a callable")
    raise ValueError(text) if given.name == "throttle_cb" else TypeError(text)


def _read_any(given: _Given) -> object:
    return given.value


_READERS: dict[Kind, Callable[[_Given], object]] = {
    Kind.NUMBER: _read_number,
    Kind.FRACTION: _read_fraction,
    Kind.FLAG: _read_flag,
    Kind.TEXT: _read_text,
    Kind.LIST: _read_list,
    Kind.SECRET: _read_secret,
    Kind.CALLBACK: _read_callback,
    Kind.ANY: _read_any,
}


# --- settings with values of their own ------------------------------------------------------------
def _read_acks(given: _Given) -> int:
    if isinstance(given.value, str) and given.value.strip(_BLANKS).lower() == "all":
        return ALL_REPLICAS
    try:
        return _read_number(given)
    except KafkaException:
        raise given.refusal("all (also -1), 1 or 0") from None


def _read_addresses(given: _Given) -> str | None:
    text = _read_text(given)
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    with_ports = [_with_port(part) for part in parts if part]
    if not with_ports:
        return None
    try:
        return ",".join(str(each) for each in read_addresses(",".join(with_ports), given.name))
    except SettingError as error:
        raise invalid_argument(str(error)) from None


def _with_port(address: str) -> str:
    host = address.rpartition("://")[2]
    return f"{address}:{_PORT}" if ":" not in host or host.endswith("]") else address


def _read_reset(given: _Given) -> str:
    text = _plain(given.value)
    if _DURATION.fullmatch(text):
        return text
    found = _RESETS.get(text.lower())
    if found is None or given.value is None:
        raise given.refusal("earliest, latest, error, or by_duration:PT1H30M")
    return found


def _read_partitioner(given: _Given) -> object:
    if callable(given.value):
        return given.value
    text = str(given.value)
    if text in PARTITIONERS or parse_user_function(given.name, text):
        return text
    found = _JAVA_PARTITIONERS.get(java_class(text))
    if found is None:
        raise given.refusal(f"one of {', '.join(PARTITIONERS)}, a callable, or module:callable")
    return found


def _read_assignors(given: _Given) -> object:
    value = _words(given.value) if isinstance(given.value, str) else given.value or ()
    if not isinstance(value, list | tuple):
        value = [value]
    found: list[object] = []
    for each in value:
        assignor = _assignor(each)
        if assignor is None:
            raise given.refusal(f"some of {', '.join(ASSIGNORS)}, or objects")
        if assignor not in found:
            found.append(assignor)
    is_mixed = any(each in ASSIGNORS and each != COOPERATIVE for each in found)
    if COOPERATIVE in found and is_mixed:
        raise given.refusal(f"{COOPERATIVE} alone, because the other ones revoke all partitions")
    return tuple(found) or given.row.default


def _assignor(given: object) -> object:
    """Return the name of a built-in assignor, or an object that is one; None for another text."""
    if not isinstance(given, str):
        return given
    name = _JAVA_ASSIGNORS.get(java_class(given.strip()), given.strip())
    return name if name in ASSIGNORS else None


def _read_interceptors(given: _Given) -> tuple[object, ...]:
    found = tuple(given.value) if isinstance(given.value, list | tuple) else None
    if found is None or not all(
        any(callable(getattr(each, method, None)) for method in _INTERCEPTED) for each in found
    ):
        raise given.refusal(f"a list of objects with {', '.join(_INTERCEPTED)}")
    return found


def _read_logger(given: _Given) -> object:
    if given.value is None or callable(getattr(given.value, "log", None)):
        return given.value
    raise TypeError(f"expected {given.name} property as a logging.Logger, not {given.value!r}")


def _read_host_check(given: _Given) -> str:
    found = _choose(given.row.choices, given.name, given.value)
    return "" if found == "none" else found


_SPECIAL: dict[str, Callable[[_Given], object]] = {
    "acks": _read_acks,
    "bootstrap.servers": _read_addresses,
    "auto.offset.reset": _read_reset,
    "partitioner": _read_partitioner,
    "partition.assignment.strategy": _read_assignors,
    "interceptor.classes": _read_interceptors,
    "logger": _read_logger,
    "ssl.endpoint.identification.algorithm": _read_host_check,
}


def _plain(value: object) -> str:
    return str(value).strip(_BLANKS)


def _words(value: object) -> list[str]:
    return [word.strip() for word in str(value).split(",") if word.strip()]


def _choose(choices: tuple[str, ...], name: str, value: object, shown: object = None) -> str:
    text = _plain(value).lower()
    for choice in choices:
        if value is not None and choice.lower() == text:
            return choice
    raise invalid_value(
        name,
        value if shown is None else shown,
        f"one of {', '.join(choice for choice in choices if choice)}",
    )
