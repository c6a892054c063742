"""Names for what each broker chooses itself: ids of topics, producers and members.

A generated request must be the same for every broker. So it holds placeholders. A `Names` belongs
to one broker: it puts the broker's own ids into requests, and the placeholders back into responses.
"""

import re
from hashlib import sha256
from typing import Any

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.message import Struct
from tests.support.oracle.records import MadeRecords, read_records

MEMBER = "@member"
LIVE_MEMBER = "@live"
"""Stand for the member ids of the case's own group and of the prepared one."""
_FIRST_PRODUCER = 7_000_000_000_000
# Between them are times that a broker set, of markers for example: no record of the oracle has one.
_NOW_MS, _FAR_MS = 1_750_000_000_000, 1 << 45
_MEMBER_ID = re.compile(r".+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOPIC, _BROKER = 2, 4
"""Resource types of DescribeConfigs."""
_OWN = re.compile(r"own-(\d+)(?!\d)")

LEFT_OUT = frozenset(
    (
        # Times.
        "throttle_time_ms",
        "log_append_time_ms",
        "transaction_start_time_ms",
        # Ids and addresses.
        "cluster_id",
        "host",
        "port",
        "client_host",
        # Messages.
        "error_message",
        "batch_index_error_message",
        "documentation",
    )
)

COMPARED_SETTINGS = frozenset(
    (
        "cleanup.policy",
        "compression.type",
        "log.retention.ms",
        "max.message.bytes",
        "message.timestamp.type",
        "retention.ms",
    )
)
"""The releases differ in what settings there are: `test_config_oracle` compares all of them."""


def topic_uuid(name: str) -> UUID:
    """The placeholder of a topic's id."""
    return UUID(bytes=sha256(name.encode()).digest()[:16])


def producer_id(number: int) -> int:
    """The placeholder of the producer id of a case."""
    return _FIRST_PRODUCER + number


def is_of_another_case(name: str | None, number: int) -> bool:
    """Whether a topic or group was made by another case, whose broker state this one ignores."""
    found = _OWN.match(name or "")
    return found is not None and int(found[1]) != number


class Names:
    """The ids that one broker has chosen, and their placeholders."""

    def __init__(self) -> None:
        self._real: dict[object, object] = {}
        self._placeholders: dict[object, object] = {}

    def learn(self, placeholder: object, real: object) -> None:
        """Replace ``placeholder`` in all further requests by ``real``."""
        self._real[placeholder] = real
        self._placeholders[real] = placeholder

    def real(self, value: Any) -> Any:
        """A copy of a request, or of a part of one, with this broker's ids."""
        if isinstance(value, Struct):
            fields = {name: self.real(getattr(value, name)) for name in type(value).__fields__}
            return type(value)(**fields)
        if isinstance(value, list):
            return [self.real(each) for each in value]
        if isinstance(value, MadeRecords):
            return value.build(self.real(value.producer_id))
        if isinstance(value, UUID | str) or (type(value) is int and value >= _FIRST_PRODUCER):
            return self._real.get(value, value)
        return value

    def plain(self, value: Any, number: int, field: str = "") -> Any:
        """A response as nested dicts and sorted lists, without what `LEFT_OUT` names.

        Rows about topics and groups of other cases than ``number`` are left out.
        """
        if isinstance(value, Struct):
            if getattr(value, "resource_type", _TOPIC) in (_TOPIC, _BROKER):
                value = _with_compared_settings(value)
            return {
                name: self.plain(getattr(value, name), number, name)
                for name in type(value).__fields__
                if name not in LEFT_OUT
            }
        if field == "records":
            return read_records(value, lambda real: self._producer(real))
        if isinstance(value, list):
            rows = [self.plain(each, number, field) for each in value if _is_seen(each, number)]
            return sorted(rows, key=repr)
        if field == "producer_id":
            return self._producer(value)
        if field == "timestamp" and _NOW_MS < value < _FAR_MS:
            return "a time"
        if field == "session_id":
            return value if value == 0 else "a session"
        if isinstance(value, UUID):
            found = self._placeholders.get(value)
            return "a topic id" if found is None and value.int else str(found or value)
        if isinstance(value, str) and _MEMBER_ID.fullmatch(value):
            return self._placeholders.get(value, "a member id")
        return bytes(value) if isinstance(value, memoryview) else value

    def _producer(self, real: int) -> object:
        return self._placeholders.get(real, "a producer id") if real >= 0 else real


def _with_compared_settings(row: Any) -> Any:
    """A row without the settings that `COMPARED_SETTINGS` does not name; other rows as they are."""
    if getattr(row, "configs", None) is None:
        return row
    fields = {name: getattr(row, name) for name in type(row).__fields__}
    fields["configs"] = [each for each in row.configs if each.name in COMPARED_SETTINGS]
    return type(row)(**fields)


def _is_seen(row: object, number: int) -> bool:
    if not isinstance(row, Struct):
        return True
    name = getattr(row, "group_id", None) or getattr(row, "name", None)
    return not (isinstance(name, str) and is_of_another_case(name, number))
