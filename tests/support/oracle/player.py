"""Sends the oracle's cases to one broker and records its responses."""

from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from typing import Any

from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.errors import ProtocolError
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request
from tests.support.eventually import eventually
from tests.support.oracle import state
from tests.support.oracle.names import Names, topic_uuid
from tests.support.oracle.steps import Case, Step
from tests.support.raw_client import ConnectionClosed, RawClient

CLOSED = "the broker closed the connection"
SILENT = "the broker did not answer"
_NOT_YET = (14, 15, 51)
"""The codes of a coordinator that loads, and of a transaction whose markers are being written."""
_SETTLES_S = 4.0
_SETUP_S = 30.0
"""How long a request is repeated until its response is final. In a setup it becomes final for sure;
after the request that is compared, it may never."""
_TIMEOUT_S = 8.0
_TOPICS_A_REQUEST = 50


class Player:
    """One broker and the ids that it chose."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._client = RawClient(address, client_id="c", timeout_s=_TIMEOUT_S)
        self._names = Names()

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def versions(self) -> dict[ApiKey, range]:
        """The versions that the broker serves of each API that klog knows."""
        answer = self._client.call(ApiVersionsRequest(), 0)
        known = {int(each) for each in ApiKey}
        return {
            ApiKey(row.api_key): range(row.min_version, row.max_version + 1)
            for row in answer.api_keys
            if row.api_key in known
        }

    def prepare(self) -> None:
        """Bring the broker into the state of `oracle/state.py`."""
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key="x", key_type=key_type)
            eventually(
                lambda request=request: self._client.call(request, 3).error_code == 0,
                60,
                "a coordinator",
            )
        self.create(state.shared_topics())
        for step in state.prepare():
            answer = self._send(step, 0, _SETUP_S)
            is_fine = not _has_error(answer) or answer["error_code"] == 79
            assert is_fine, (step, answer)
        eventually(self._is_stable, 30, "the markers of the prepared transactions")

    def _is_stable(self) -> bool:
        ends = []
        for isolation in (0, 1):
            row = ListOffsetsPartition(partition_index=0, timestamp=-1)
            topics = [ListOffsetsTopic(name="txn", partitions=[row])]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
            ends.append(self._client.call(request, 5).topics[0].partitions[0].offset)
        return ends == [11, 11]

    def create(self, topics: Sequence[CreatableTopic]) -> None:
        """Create topics and wait until they have leaders."""
        for first in range(0, len(topics), _TOPICS_A_REQUEST):
            some = list(topics[first : first + _TOPICS_A_REQUEST])
            answer = self._client.call(CreateTopicsRequest(topics=some, timeout_ms=60_000), 7)
            for row in answer.topics:
                assert row.error_code == 0, row
                self._names.learn(topic_uuid(row.name), row.topic_id)
        eventually(lambda: self._are_led(topics), 60, "leaders of the new topics")

    def _are_led(self, topics: Sequence[CreatableTopic]) -> bool:
        """Whether every partition serves: Metadata shows leaders before that."""
        rows = [
            ListOffsetsTopic(
                name=each.name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=-1)
                    for index in range(each.num_partitions)
                ],
            )
            for each in topics
        ]
        answer = self._client.call(ListOffsetsRequest(replica_id=-1, topics=rows), 5)
        return all(each.error_code == 0 for topic in answer.topics for each in topic.partitions)

    def play(self, cases: Iterable[Case]) -> list[tuple[list[Any], list[Any]]]:
        """Return each case's plain responses: to its setup, and to its request and its probes."""
        found = []
        for case in cases:
            before = [self._send(step, case.number, _SETUP_S) for step in case.setup]
            sent = Step(case.request, case.version)
            found.append((before, [self._send(each, case.number) for each in (sent, *case.probes)]))
        return found

    def _send(self, step: Step, number: int, settles_s: float = _SETTLES_S) -> Any:
        """The final plain response, or `CLOSED` or `SILENT`."""
        request = self._names.real(step.request)
        answer = plain = None

        def is_final() -> bool:
            nonlocal answer, plain
            answer = plain = self._answer(request, step.version)
            if isinstance(answer, str):
                return True
            plain = self._names.plain(answer, number)
            return not _has_code(plain, _NOT_YET) and (step.awaits is None or step.awaits(plain))

        with suppress(AssertionError):  # a response that never becomes final counts, too
            eventually(is_final, settles_s)
        if isinstance(answer, str):
            return answer
        for placeholder, real in (step.learn(answer) if step.learn else {}).items():
            self._names.learn(placeholder, real)
        return plain

    def _answer(self, request: Request, version: int) -> Any:
        if getattr(request, "acks", None) == 0:
            self._client.send(request, version)
            return "no response is expected"
        try:
            return self._client.call(request, version)
        except (ConnectionClosed, BrokenPipeError):
            found = CLOSED
        except TimeoutError:
            found = SILENT
        except ProtocolError as error:
            found = f"a damaged response: {error}"
        self._client.close()
        self._client = RawClient(self._address, client_id="c", timeout_s=_TIMEOUT_S)
        return found


def _has_code(plain: Any, codes: Container[int]) -> bool:
    if isinstance(plain, dict):
        return any(
            (name.endswith("error_code") and value in codes) or _has_code(value, codes)
            for name, value in plain.items()
        )
    return isinstance(plain, list) and any(_has_code(each, codes) for each in plain)


def _has_error(plain: Any) -> bool:
    return plain in (CLOSED, SILENT) or _has_code(plain, range(1, 1_000))
