"""Check settings together, and derive values that follow from the values of other settings.

`adjust` changes a mapping of typed values by the names in the table. The mapping has no defaults,
so that a value which a program did not give can follow from another one.
"""

from collections.abc import Mapping, MutableMapping
from typing import cast

from pyspark_klog.kafka._errors import KafkaException
from pyspark_klog.kafka._producer_rows import ALL_REPLICAS
from pyspark_klog.kafka._setting_rows import BY_NAME
from pyspark_klog.kafka._setting_types import INT_MAX
from pyspark_klog.kafka._setting_values import invalid_argument

_MOST_IN_FLIGHT = 5
_OF_A_FETCH_ONLY = 512
"""Bytes of a response to a fetch beyond the records."""

Values = MutableMapping[str, object]


def adjust(kind: str, values: Values, names: Mapping[str, str]) -> None:
    """Check the given ``values`` of a client of ``kind``, and add those that follow from them.

    ``names`` are the names that the program used, for error messages.

    :raises KafkaException: _INVALID_ARG, which names the settings that contradict each other
    """
    checks = _Checks(values, names)
    checks.check_at_most("reconnect.backoff.ms", "reconnect.backoff.max.ms")
    if kind == "producer":
        checks.adjust_idempotence()
        checks.adjust_times()
        checks.check_level()
    elif kind == "consumer":
        checks.check_group()
        checks.adjust_sizes()
    values.setdefault("allow.auto.create.topics", kind == "producer")


class _Checks:
    def __init__(self, values: Values, names: Mapping[str, str]) -> None:
        self._values = values
        self._names = names

    def _number(self, name: str) -> float:
        return cast("float", self._values.get(name, BY_NAME[name].default))

    def _shown(self, name: str) -> str:
        value = self._values.get(name, BY_NAME[name].default)
        return f"{self._names.get(name, name)}={value}"

    def _contradiction(self, one: str, other: str, expected: str) -> KafkaException:
        return invalid_argument(
            f"{self._shown(one)} contradicts {self._shown(other)}; expected {expected}"
        )

    def check_at_most(self, smaller: str, larger: str) -> None:
        """Check that one number is at most another one."""
        if self._number(smaller) > self._number(larger):
            names = [self._names.get(name, name) for name in (larger, smaller)]
            raise self._contradiction(larger, smaller, f"{names[0]} >= {names[1]}")

    # --- producers --------------------------------------------------------------------------------
    def adjust_idempotence(self) -> None:
        """Turn enable.idempotence off if other settings contradict its default, as in Java."""
        values, switch = self._values, "enable.idempotence"
        cause = "transactional.id" if values.get("transactional.id") else switch
        if cause != switch and values.get(switch) is False:
            raise self._contradiction(switch, cause, f"{switch}=true")
        is_wanted = cause != switch or values.get(switch) is True
        for name, is_right, expected in (
            ("acks", self._number("acks") == ALL_REPLICAS, "acks=all"),
            (
                *("max.in.flight.requests.per.connection",),
                self._number("max.in.flight.requests.per.connection") <= _MOST_IN_FLIGHT,
                f"at most {_MOST_IN_FLIGHT}",
            ),
            ("retries", self._number("retries") >= 1, "at least 1"),
            ("queuing.strategy", values.get("queuing.strategy") != "lifo", "fifo"),
        ):
            if is_right:
                continue
            if is_wanted:
                raise self._contradiction(name, cause, expected)
            values[switch] = False

    def adjust_times(self) -> None:
        """Bring linger.ms, delivery.timeout.ms and transaction.timeout.ms into line: if a program
        gave both of two, a contradiction is an error; else the other one follows."""
        values, linger, delivery = self._values, "linger.ms", "delivery.timeout.ms"
        limit = "transaction.timeout.ms"
        if values.get(delivery) == 0:
            values[delivery] = INT_MAX
        elif values.get("transactional.id") and self._number(delivery) > self._number(limit):
            if delivery in values:
                raise self._contradiction(delivery, limit, f"at most {self._number(limit)}")
            values[delivery] = self._number(limit)
        if self._number(linger) < self._number(delivery):
            return
        if linger in values and delivery in self._names:
            raise self._contradiction(delivery, linger, "more than linger.ms")
        if linger in values:
            values[delivery] = int(self._number(linger) + self._number("request.timeout.ms"))
        else:
            values[linger] = float(self._number(delivery) - 1)

    def check_level(self) -> None:
        """Check compression.level, librdkafka's setting for all kinds of compression."""
        kind = self._values.get("compression.type")
        own = f"compression.{kind}.level"
        if "compression.level" not in self._values or own not in BY_NAME:
            return
        if own in self._values:
            raise self._contradiction("compression.level", own, "one of them")
        if kind == "gzip" and self._values["compression.level"] == 0:
            raise self._contradiction("compression.level", "compression.type", "-1, or 1 to 9")

    # --- consumers --------------------------------------------------------------------------------
    def check_group(self) -> None:
        """Check the settings of the group."""
        if not self._values.get("group.id"):
            raise invalid_argument("group.id is empty; expected the name of the consumer's group")
        self.check_at_most("session.timeout.ms", "max.poll.interval.ms")

    def adjust_sizes(self) -> None:
        """Check that a batch of the largest size can be fetched."""
        values, fetch, largest = self._values, "fetch.max.bytes", "receive.message.max.bytes"
        if fetch in values:
            self.check_at_most("max.request.size", fetch)
        else:
            values[fetch] = max(self._number(fetch), self._number("max.request.size"))
        if largest in values and self._number(largest) < self._number(fetch) + _OF_A_FETCH_ONLY:
            raise self._contradiction(largest, fetch, f"at least {_OF_A_FETCH_ONLY} bytes more")
