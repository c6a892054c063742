"""EndTxn that a connection repeats is answered as if each was the first."""

from collections.abc import Callable
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
)
from tests.support.cluster.broker import MemoryBroker, answer_of
from tests.support.coordinator.transaction_client import (
    PLAIN,
    MemoryClient,
    broker_with_coordinators,
)

NEWEST = 5


class Ending:
    """One connection that ends transactions."""

    def __init__(self, decoded: list[object]) -> None:
        self.decoded = decoded
        self.broker: MemoryBroker = broker_with_coordinators()
        self._stream = self.broker.connect()
        self._correlation_id = 70_000

    def end_transaction(
        self, client: MemoryClient, version: int = NEWEST, *, again: bool, **fields: Any
    ) -> tuple[int, int, int]:
        """Error, producer id and epoch; ``again``: whether it is to be known by its bytes."""
        self._correlation_id += 1
        request = EndTxnRequest(
            transactional_id=client.transactional_id,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            **{"committed": True, **fields},
        )
        header = RequestHeader(request.api_key, version, self._correlation_id, "cliént")
        self._stream.inbox += encode_request(header, request)
        before = len(self.decoded)
        self.broker.turns()
        assert (len(self.decoded) == before) == again
        answer = answer_of(self._stream, request, version)
        sent = bytes(self._stream.sent)
        assert len(sent) == 4 + int.from_bytes(sent[:4], "big")
        found = decode_response_header(sent[4:], request.api_key, version)
        assert found[0] == self._correlation_id
        self._stream.sent.clear()
        return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Ending:
    decoded: list[object] = []
    decode: Callable[..., Any] = decode_request_header

    def counted(frame: memoryview) -> Any:
        decoded.append(frame)
        return decode(frame)

    monkeypatch.setattr("klog_broker.dispatch.dispatcher.decode_request_header", counted)
    return Ending(decoded)


def begun(client: MemoryClient) -> MemoryClient:
    """Begin a transaction for the client."""
    if client.producer_id < 0:
        assert client.init() == 0
    assert client.verify() == 0
    client.write()
    return client


def test_the_next_end_of_an_id_is_recognized_and_decided_again(ending: Ending) -> None:
    client = begun(MemoryClient(ending.broker))
    first = client.epoch
    for number, is_commit in enumerate((True, False, True)):
        error, producer_id, epoch = ending.end_transaction(
            client, again=number > 0, committed=is_commit
        )
        assert (error, producer_id, epoch) == (0, client.producer_id, first + number + 1)
        client.epoch = epoch
        begun(client)
    log = ending.broker.log("plain")
    (aborted,) = log.aborted_transactions(0, log.log_end_offset)
    assert aborted.producer_id == client.producer_id


def test_an_error_is_answered_as_the_first_time(ending: Ending) -> None:
    client = begun(MemoryClient(ending.broker))
    assert ending.end_transaction(client, again=False)[0] == ErrorCode.NONE
    client.epoch += 7
    fenced = (ErrorCode.PRODUCER_FENCED, -1, -1)
    assert ending.end_transaction(client, again=True) == fenced


def test_another_id_of_the_same_length_is_another_request(ending: Ending) -> None:
    one, other = MemoryClient(ending.broker, "tx-1"), MemoryClient(ending.broker, "tx-2")
    assert ending.end_transaction(begun(one), again=False)[0] == 0
    assert ending.end_transaction(begun(other), again=False)[:2] == (0, other.producer_id)


@pytest.mark.parametrize("version", [0, 3, 4])
def test_older_versions_are_decoded_each_time(ending: Ending, version: int) -> None:
    client = MemoryClient(ending.broker, raises=False)
    for _ in range(2):
        if client.producer_id < 0:
            assert client.init() == 0
        assert client.add(PLAIN) == [0]
        assert ending.end_transaction(client, version, again=False)[0] == 0


def test_a_request_with_tagged_fields_is_decoded_each_time(ending: Ending) -> None:
    client = begun(MemoryClient(ending.broker))
    tags = {"unknown_tagged_fields": {9: b"?"}}
    for _ in range(2):
        error, _, client.epoch = ending.end_transaction(client, again=False, **tags)
        assert error == 0
        begun(client)
