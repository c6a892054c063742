"""ListTransactions: returns the transactional ids that this broker coordinates, filtered by state,
producer id, age and a pattern for the id."""

from klog_broker.api.linear_patterns import InvalidPattern, LinearPattern
from klog_broker.api.services import TransactionServices
from klog_broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from klog_broker.dispatch.access import on_transactional_ids
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.resources.authorizer import is_allowed
from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.state_records import transaction_log

_BY_NAME = {each.kafkas_name: each for each in transaction_log.TransactionState}
# How many transactional ids can be checked in about 5 us of the event loop's time, the unit of cost
# that the handler yields (runtime/event_loop/slices.py).
_LOOKED_AT = 10


def handle(
    services: TransactionServices, request: ListTransactionsRequest, context: RequestContext
) -> ResponseSteps:
    """Return the transactions. The response lists unknown state names, which match no
    transaction."""
    error, machines = services.transactions.machines()
    response = ListTransactionsResponse(error_code=error)
    wanted = _Wanted(request, services.clock.now_ms())
    pattern = _pattern(request.transactional_id_pattern)
    response.unknown_state_filters = wanted.unknown_states
    for number, machine in enumerate(machines):
        if number % _LOOKED_AT == 0:
            yield 1
        known = machine.metadata
        if known is None or not wanted.matches(known):
            continue
        transactional_id = machine.transactional_id
        if not is_allowed(
            services,
            context,
            AclOperation.DESCRIBE,
            AclResourceType.TRANSACTIONAL_ID,
            transactional_id,
        ):
            continue
        if pattern is None or (yield from pattern.matches(transactional_id)):
            response.transaction_states.append(
                TransactionState(
                    transactional_id=transactional_id,
                    producer_id=known.producer_id,
                    transaction_state=known.state.kafkas_name,
                )
            )
    return response


def _pattern(text: str | None) -> LinearPattern | None:
    try:
        return LinearPattern(text) if text else None
    except InvalidPattern as error:
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


class _Wanted:
    """The filters of one ListTransactions request, except its pattern: states, producer ids and a
    duration."""

    def __init__(self, request: ListTransactionsRequest, now_ms: int) -> None:
        names = dict.fromkeys(request.state_filters)
        self.unknown_states = [each for each in names if each not in _BY_NAME]
        self._by_state = bool(names)
        self._states = frozenset(_BY_NAME[each] for each in names if each in _BY_NAME)
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        self._now_ms = now_ms

    def matches(self, known: TransactionMetadata) -> bool:
        """Return whether a transaction passes these filters. An id without a transaction counts as
        running since 1970, as in Kafka."""
        if self._by_state and known.state not in self._states:
            return False
        if self._producer_ids and known.producer_id not in self._producer_ids:
            return False
        return self._duration_ms < 0 or self._now_ms - known.start_ms > self._duration_ms


API = BrokerApi(
    ApiKey.LIST_TRANSACTIONS,
    handle,
    top_level_error(ApiKey.LIST_TRANSACTIONS),
    access=(on_transactional_ids(AclOperation.DESCRIBE),),
)
