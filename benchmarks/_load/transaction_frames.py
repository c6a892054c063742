"""The frames of the job Transactions, and the places of the changing fields in them."""

from dataclasses import replace
from typing import NamedTuple

from benchmarks._load import frames
from benchmarks._load.jobs import LoadFailed, Transactions
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from pyspark_klog.protocol.headers import RequestHeader, encode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey

END_VERSION = 5
"""The first version whose response has the producer id and epoch for the next transaction."""

# A value that can be found in an encoded frame, because no other field looks like this.
_MARK = 0x5A17_C0DE_0B5E_55ED
_MARK_BYTES = _MARK.to_bytes(8, "big")


class TransactionFrames(NamedTuple):
    """A Produce and an EndTxn frame for each connection, one behind another, each of one size."""

    produce: bytearray
    ends: bytearray
    batch_bytes: int
    batch_start_at: int
    producer_at: int
    """The place of the producer id in an EndTxn frame."""
    ended_producer_at: int
    """The place of the producer id in the response to EndTxn."""


def transaction_frames(job: Transactions) -> TransactionFrames:
    """The frames of all connections, without the fields that change from request to request."""
    is_transactional = job.producers[0].transactional_id is not None
    batch = frames.one_batch(job.messages, producer_id=0, is_transactional=is_transactional)
    produce, ends = bytearray(), bytearray()
    for number, producer in enumerate(job.producers):
        target = replace(job.target, partition=number)
        owner = producer.transactional_id
        produce += frames.produce_frame(target, job.version, -1, 0, batch, owner)
        ends += _end_frame(owner or "")
    if len(produce) % len(job.producers) or len(ends) % len(job.producers):
        raise LoadFailed("the transactional ids are not of one length")
    answer = encode_response(0, EndTxnResponse(producer_id=_MARK), END_VERSION)
    return TransactionFrames(
        produce,
        ends,
        len(batch),
        produce.index(batch),
        _end_frame(job.producers[0].transactional_id or "", _MARK).index(_MARK_BYTES),
        answer.index(_MARK_BYTES),
    )


def _end_frame(transactional_id: str, producer_id: int = 0) -> bytes:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=0, committed=True
    )
    return encode_request(RequestHeader(ApiKey.END_TXN, END_VERSION, 0, frames.CLIENT_ID), request)
