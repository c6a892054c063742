"""One fault: which requests it concerns, what it does, and how often it has been used."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from klog_broker.api.families import BETWEEN_BROKERS, SERVED
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.faults.topic_errors import names_partitions, names_topics
from klog_broker.network.responses import QueuedResponse
from klog_broker.network.single_requests import SingleResponse
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.protocol.keys import ApiKey

Slot = QueuedResponse | SingleResponse
APIS: dict[int, BrokerApi[Any]] = {each.api_key: each for each in (*SERVED, *BETWEEN_BROKERS)}
"""All APIs that brokers serve, by API key."""
BROKER_APIS = frozenset(int(each.api_key) for each in BETWEEN_BROKERS)
"""The keys of the APIs that only brokers of a cluster send."""

_KEYS = {"".join(word.capitalize() for word in each.name.split("_")): each for each in ApiKey}


class FaultRefused(KlogError):
    """The test's command cannot be carried out, for the reason in the text."""


class Action(Enum):
    """The action of a fault on the requests to which the fault applies."""

    ANSWER = "answer"
    DELAY = "delay"
    DISCONNECT_BEFORE = "disconnect-before"
    DISCONNECT_AFTER = "disconnect-after"
    BLACKHOLE = "blackhole"


@dataclass(slots=True, eq=False)
class Fault:
    """An active fault. ``api_key`` is None for a fault of all APIs (a black hole)."""

    action: Action
    api_key: int | None = None
    client_id: str | None = None
    code: ErrorCode = ErrorCode.NONE
    topic: str | None = None
    partition: int | None = None
    delay_ms: int = 0
    times: int | None = None
    """How many requests the fault may still affect; None means all."""
    fired: int = 0
    """The number of requests that the fault has affected."""
    swallowed: list[Slot] = field(default_factory=list)
    """The places of the responses that a black hole never fills."""

    def concerns(self, api_key: int, client_id: str) -> bool:
        """Whether the fault may affect a request of this API and client."""
        return (
            self.times != 0
            and (self.api_key is None or self.api_key == api_key)
            and (self.client_id is None or self.client_id == client_id)
        )

    def use(self) -> None:
        """Count one affected request."""
        self.fired += 1
        if self.times is not None:
            self.times -= 1


def parse_fault(command: dict[str, Any]) -> Fault:
    """Make a fault from a test's command.

    :raises FaultRefused: if the API does not exist, or has no errors for topics or partitions
    """
    action = Action(command["action"])
    if action is Action.BLACKHOLE:
        return Fault(action, client_id=command["client_id"])
    fault = Fault(action, _find_api(command["api"]).api_key, times=command["times"])
    if action is Action.DELAY:
        fault.delay_ms = command["ms"]
    elif action is Action.ANSWER:
        fault.code = ErrorCode[command["error"]]
        fault.topic, fault.partition = command["topic"], command["partition"]
        _check_level(fault, command["api"])
    return fault


def _find_api(name: str) -> BrokerApi[Any]:
    key = _KEYS.get(name)
    if key is None or key not in APIS:
        names = ", ".join(sorted(name for name, key in _KEYS.items() if key in APIS))
        raise FaultRefused(f"brokers serve no API {name!r}; they serve {names}")
    return APIS[key]


def _check_level(fault: Fault, name: str) -> None:
    assert fault.api_key is not None
    if fault.topic is None and fault.partition is not None:
        raise FaultRefused("a partition needs its topic: give both, or only the topic")
    if fault.topic is not None and not names_topics(fault.api_key):
        raise FaultRefused(f"{name} has no errors of single topics: leave out topic and partition")
    if fault.partition is not None and not names_partitions(fault.api_key):
        raise FaultRefused(f"{name} has no errors of single partitions: leave out partition")
