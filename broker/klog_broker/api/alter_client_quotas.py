"""AlterClientQuotas (key 49): sets and removes quotas of users, clients and addresses.

Quotas are stored, but not enforced yet; a line in the broker's log and the error message of each
accepted change (with error code NONE, so that clients ignore the message) say so.
"""

import logging
from collections import Counter
from collections.abc import Mapping

from klog_broker.api.services import SettingsServices
from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.image import QuotaEntity
from klog_broker.quota.entities import check_quota, checked_entity
from klog_broker.security.acls import AclOperation
from klog_broker.topics.errors import as_broker_error
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
    ResponseEntryData,
)
from pyspark_klog.protocol.keys import ApiKey

_log = logging.getLogger("klog.quota")

WITHOUT_EFFECT = "the broker stores quotas, but does not enforce them yet"

_Names = tuple[tuple[str, str | None], ...]


def handle(
    services: SettingsServices, request: AlterClientQuotasRequest, context: RequestContext
) -> ResponseSteps:
    """Check the changes of each quota entity (such as a user or a client id) independently of the
    other entities. The metadata store gets the changes of all entities that passed the check
    together; an error of the store is the result of each of these entities. An entity that the
    request names twice gets one result, an error, and keeps its quotas; Kafka applies the first of
    the entity's changes instead."""
    names_of = [_names(entry) for entry in request.entries]
    times = Counter(frozenset(names) for names in names_of)
    response = AlterClientQuotasResponse()
    planned: dict[QuotaEntity, ResponseEntryData] = {}
    updates: dict[QuotaEntity, Mapping[str, float | None]] = {}
    answered: set[frozenset[tuple[str, str | None]]] = set()
    for entry, names in zip(request.entries, names_of, strict=True):
        yield 1 + len(entry.ops)
        if frozenset(names) in answered:
            continue
        answered.add(frozenset(names))
        result = _result(names)
        response.entries.append(result)
        try:
            if times[frozenset(names)] > 1:
                text = "the entity is named twice; put its quotas into one entry"
                raise BrokerError(ErrorCode.INVALID_REQUEST, text)
            entity = checked_entity(dict(names))
            updates[entity] = _update(entity, entry.ops)
            result.error_message = WITHOUT_EFFECT
            planned[entity] = result
        except BrokerError as error:
            _put(result, error)
    if request.validate_only or not planned:
        return response

    def on_updated(outcome: Exception | None) -> None:
        if outcome is not None:
            for result in planned.values():
                _put(result, as_broker_error(outcome))
        else:
            _log.warning(
                "changed the quotas of %d users, clients or addresses; they are stored, but not"
                " enforced yet",
                len(planned),
            )
        context.response_sink.send(response)

    services.metadata.update_client_quotas(updates, on_updated)
    return None


def _names(entry: EntryData) -> _Names:
    """Return the names of a quota entity by type (user, client-id, ip); if a type occurs several
    times, the last name counts, as in Kafka."""
    return tuple({each.entity_type: each.entity_name for each in entry.entity}.items())


def _update(entity: QuotaEntity, ops: list[OpData]) -> Mapping[str, float | None]:
    """Return the new quota by key, or None for a quota to remove; an unknown key may be removed."""
    update: dict[str, float | None] = {}
    for each in ops:
        if each.key in update:
            text = f"{each.key!r} is named twice for one entity"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        if not each.remove:
            check_quota(entity, each.key, each.value)
        update[each.key] = None if each.remove else each.value
    return update


def _result(names: _Names) -> ResponseEntryData:
    entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in names]
    return ResponseEntryData(error_message=None, entity=entity)


def _put(result: ResponseEntryData, error: BrokerError) -> None:
    result.error_code, result.error_message = error.code, client_text(error)


def error_response(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    """Return a response with ``code`` for every quota entity in the request."""
    response = AlterClientQuotasResponse()
    for entry in request.entries:
        result = _result(_names(entry))
        _put(result, BrokerError(code))
        response.entries.append(result)
    return response


API = BrokerApi(
    ApiKey.ALTER_CLIENT_QUOTAS,
    handle,
    error_response,
    access=(on_cluster(AclOperation.ALTER_CONFIGS),),
)
