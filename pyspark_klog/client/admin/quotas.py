"""Reads and changes the quotas of users, client ids and addresses, on brokers from Kafka 2.6 on."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import check_error_code, is_retriable_at_controller
from pyspark_klog.protocol.apis import alter_client_quotas, describe_client_quotas
from pyspark_klog.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from pyspark_klog.protocol.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""The types of entities that have quotas."""
_EXACT, _DEFAULT, _ANY = 0, 1, 2

Entity = Mapping[str, str | None]
"""The entity that a quota is for: its names by entity type, as in ``{"user": "ann"}``. The name
None stands for the default of its type."""


class Quotas(NamedTuple):
    """The quotas of one entity, by the quotas' names, such as ``producer_byte_rate``."""

    entity: dict[str, str | None]
    values: dict[str, float]


def describe_quotas(
    client: BlockingClient,
    entity: Entity,
    any_of: tuple[str, ...] = (),
    deadline_ms: int | None = None,
) -> list[Quotas]:
    """The quotas of exactly this entity.

    ``any_of`` names further entity types: the result then has the quotas of all entities that
    consist of ``entity`` and of any name of each of these types. An empty entity and an empty
    ``any_of`` give the quotas of all entities.
    """
    components = [
        describe_client_quotas.ComponentData(
            entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
        )
        for kind, name in entity.items()
    ]
    components += [
        describe_client_quotas.ComponentData(entity_type=kind, match_type=_ANY, match=None)
        for kind in any_of
    ]
    request = DescribeClientQuotasRequest(components=components, strict=bool(components))
    deadline = client.deadline() if deadline_ms is None else deadline_ms

    def attempt() -> list[Quotas]:
        link = client.link_to_any(deadline)
        response = client.call(link, DescribeClientQuotasResponse, lambda _: request)
        check_error_code(response.error_code, response.error_message, "describe quotas")
        return [
            Quotas(
                {each.entity_type: each.entity_name for each in row.entity},
                {each.key: each.value for each in row.values},
            )
            for row in response.entries or ()
        ]

    found = client.run_with_retries(
        attempt, deadline, "asking for quotas", is_retriable_at_controller
    )
    return sorted(found, key=lambda each: [(kind, n or "") for kind, n in each.entity.items()])


def alter_quotas(
    client: BlockingClient,
    entity: Entity,
    changes: Mapping[str, float | None],
    *,
    validate_only: bool = False,
    deadline_ms: int | None = None,
) -> tuple[str, ...]:
    """Set quotas of an entity, or with ``validate_only`` only check the changes. The value None
    removes a quota. Returns the broker's remarks on the changes: a klog broker that does not
    enforce quotas says so.

    :raises BrokerError: if the broker refuses a change; the message has the broker's reason
    """
    row = alter_client_quotas.EntryData(
        entity=[
            alter_client_quotas.EntityData(entity_type=kind, entity_name=name)
            for kind, name in entity.items()
        ],
        ops=[
            alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[row], validate_only=validate_only)
    deadline = client.deadline() if deadline_ms is None else deadline_ms

    def attempt() -> tuple[str, ...]:
        link = client.link_to_any(deadline)
        response = client.call(link, AlterClientQuotasResponse, lambda _: request)
        for answer in response.entries:
            check_error_code(answer.error_code, answer.error_message, "alter quotas")
        return tuple(each.error_message for each in response.entries if each.error_message)

    return client.run_with_retries(attempt, deadline, "altering quotas", is_retriable_at_controller)
