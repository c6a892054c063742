"""ListTransactions: transactional ids by state, producer id, age of the transaction and pattern."""

from pyspark_klog.protocol.fields import array, int16, int32, int64, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class ListTransactionsRequest(
    Request, api=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible_since=0
):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, nullable_since=2, default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(
    Response, api=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
