"""The families of APIs: which APIs a broker serves, and which objects their handlers use.

A family is a group of APIs whose handlers use the same services (objects of the broker, such as
logs, the metadata and the group coordinator). The broker binds each family to its services once, at
start-up. ApiVersions lists the APIs of all bound families.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from klog_broker.api import (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from klog_broker.api.api_versions import VersionsServices
from klog_broker.api.elect_leaders import ElectionServices
from klog_broker.api.offsets_in_zookeeper import OffsetsServices
from klog_broker.api.services import (
    AllServices,
    FindCoordinatorServices,
    GroupServices,
    LogServices,
    SettingsServices,
    TopicsServices,
    TransactionServices,
)
from klog_broker.cluster.broker_requests import BetweenBrokersServices, ClusterServices
from klog_broker.dispatch.api_handler import ApiHandler, BrokerApi, bind
from klog_broker.fetch.services import FetchServices
from klog_broker.produce.services import ProduceServices

# --- the families: groups of APIs whose handlers use the same services (objects of the broker) ----
_PRODUCE: tuple[BrokerApi[ProduceServices], ...] = (produce.API,)
_FETCH: tuple[BrokerApi[FetchServices], ...] = (fetch.API,)
_LOGS: tuple[BrokerApi[LogServices], ...] = (
    delete_records.API,
    describe_log_dirs.API,
    describe_producers.API,
    list_offsets.API,
    offset_for_leader_epoch.API,
)
_GROUPS: tuple[BrokerApi[GroupServices], ...] = (
    delete_groups.API,
    describe_groups.API,
    heartbeat.API,
    join_group.API,
    leave_group.API,
    list_groups.API,
    offset_delete.API,
    sync_group.API,
)
_OFFSETS: tuple[BrokerApi[GroupServices], ...] = (offset_commit.API, offset_fetch.API)
_OFFSETS_IN_CLUSTER: tuple[BrokerApi[OffsetsServices], ...] = (
    offset_commit.IN_CLUSTER,
    offset_fetch.IN_CLUSTER,
)
_FINDER: tuple[BrokerApi[FindCoordinatorServices], ...] = (find_coordinator.API,)
_TRANSACTIONS: tuple[BrokerApi[TransactionServices], ...] = (
    add_offsets_to_txn.API,
    add_partitions_to_txn.API,
    describe_transactions.API,
    end_txn.API,
    init_producer_id.API,
    list_transactions.API,
    txn_offset_commit.API,
    write_txn_markers.API,
)
_TOPICS: tuple[BrokerApi[TopicsServices], ...] = (
    alter_partition_reassignments.API,
    create_partitions.API,
    create_topics.API,
    delete_topics.API,
    describe_cluster.API,
    describe_topic_partitions.API,
    list_partition_reassignments.API,
    metadata.API,
)
_ELECTIONS: tuple[BrokerApi[TopicsServices], ...] = (elect_leaders.API,)
_ELECTIONS_IN_CLUSTER: tuple[BrokerApi[ElectionServices], ...] = (elect_leaders.IN_CLUSTER,)
_SETTINGS: tuple[BrokerApi[SettingsServices], ...] = (
    alter_client_quotas.API,
    alter_configs.API,
    describe_client_quotas.API,
    describe_configs.API,
    incremental_alter_configs.API,
    list_config_resources.API,
)
_SECURITY: tuple[BrokerApi[object], ...] = (
    acls.CREATE,
    acls.DELETE,
    acls.DESCRIBE,
    describe_user_scram_credentials.API,
)
_VERSIONS: tuple[BrokerApi[VersionsServices], ...] = (api_versions.API, update_features.API)
BETWEEN_BROKERS: tuple[BrokerApi[BetweenBrokersServices], ...] = (
    allocate_producer_ids.API,
    alter_partition.API,
    controlled_shutdown.API,
    leader_and_isr.API,
    stop_replica.API,
    update_metadata.API,
)
"""APIs that only a broker in a cluster serves, and only to the brokers of the cluster."""

SERVED: tuple[BrokerApi[Any], ...] = (
    *_PRODUCE,
    *_FETCH,
    *_LOGS,
    *_GROUPS,
    *_OFFSETS,
    *_FINDER,
    *_TRANSACTIONS,
    *_TOPICS,
    *_ELECTIONS,
    *_SETTINGS,
    *_SECURITY,
    *_VERSIONS,
)
"""APIs that every broker serves."""


# --- functions that bind a family's APIs to a broker's services ----------------------------------
def produce_handlers(services: ProduceServices) -> tuple[ApiHandler, ...]:
    """Return the handler of Produce."""
    return bind(_PRODUCE, services)


def fetch_handlers(services: FetchServices) -> tuple[ApiHandler, ...]:
    """Return the handler of Fetch."""
    return bind(_FETCH, services)


def log_handlers(services: LogServices) -> tuple[ApiHandler, ...]:
    """Return the handlers of the APIs about partitions' logs."""
    return bind(_LOGS, services)


def group_handlers(services: GroupServices) -> tuple[ApiHandler, ...]:
    """Return the handlers of the APIs about consumer groups, except OffsetCommit and
    OffsetFetch."""
    return bind(_GROUPS, services)


def offset_handlers(services: GroupServices) -> tuple[ApiHandler, ...]:
    """Return a standalone broker's handlers of OffsetCommit and OffsetFetch."""
    return bind(_OFFSETS, services)


def offset_handlers_in_cluster(services: OffsetsServices) -> tuple[ApiHandler, ...]:
    """Return the handlers of OffsetCommit and OffsetFetch of a broker in a cluster. Version 0 of
    both APIs stores and reads offsets in ZooKeeper; later versions use the group coordinator."""
    return bind(_OFFSETS_IN_CLUSTER, services)


def finder_handlers(services: FindCoordinatorServices) -> tuple[ApiHandler, ...]:
    """Return the handler of FindCoordinator."""
    return bind(_FINDER, services)


def transaction_handlers(services: TransactionServices) -> tuple[ApiHandler, ...]:
    """Return the handlers of the APIs about transactions, and of InitProducerId."""
    return bind(_TRANSACTIONS, services)


def topic_handlers(services: TopicsServices) -> tuple[ApiHandler, ...]:
    """Return the handlers of the APIs that create, change, delete and describe topics or describe
    the cluster."""
    return bind(_TOPICS, services)


def election_handlers(services: TopicsServices) -> tuple[ApiHandler, ...]:
    """Return the handler of a standalone broker's ElectLeaders."""
    return bind(_ELECTIONS, services)


def election_handlers_in_cluster(services: ElectionServices) -> tuple[ApiHandler, ...]:
    """Return the handler with which a broker in a cluster serves ElectLeaders."""
    return bind(_ELECTIONS_IN_CLUSTER, services)


def settings_handlers(services: SettingsServices) -> tuple[ApiHandler, ...]:
    """Return the handlers of the APIs that describe and alter settings and quotas."""
    return bind(_SETTINGS, services)


def security_handlers() -> tuple[ApiHandler, ...]:
    """Return the handlers of the APIs for ACLs and credentials, neither of which klog has."""
    return bind(_SECURITY, None)


def between_brokers_handlers(services: BetweenBrokersServices) -> tuple[ApiHandler, ...]:
    """Return the handlers of BETWEEN_BROKERS: the APIs that only brokers of the cluster send."""
    return bind(BETWEEN_BROKERS, services)


def standalone_handlers(services: AllServices, cluster_id: str) -> tuple[ApiHandler, ...]:
    """Return all handlers of a standalone broker."""
    handlers = (
        *_handlers_everywhere(services),
        *offset_handlers(services),
        *election_handlers(services),
    )
    return _with_versions(handlers, services, cluster_id)


def cluster_handlers(
    services: AllServices, cluster_id: str, cluster: ClusterServices
) -> tuple[ApiHandler, ...]:
    """Return all handlers of a broker in a cluster."""
    handlers = (
        *_handlers_everywhere(services),
        *offset_handlers_in_cluster(OffsetsServices(services, cluster.store.consumer_offsets)),
        *election_handlers_in_cluster(ElectionServices(services.metadata, cluster.changes)),
        *between_brokers_handlers(
            BetweenBrokersServices(
                services.broker_id,
                services.config.inter_broker_listener,
                services.loop,
                services.replicas,
                services.requests,
                cluster,
            )
        ),
    )
    return _with_versions(handlers, services, cluster_id)


def _handlers_everywhere(services: AllServices) -> Iterable[ApiHandler]:
    """Return the handlers that a standalone broker and a broker in a cluster share, except those of
    ApiVersions and UpdateFeatures."""
    return (
        *produce_handlers(services),
        *fetch_handlers(services),
        *log_handlers(services),
        *group_handlers(services),
        *finder_handlers(services),
        *transaction_handlers(services),
        *topic_handlers(services),
        *settings_handlers(services),
        *security_handlers(),
    )


def _with_versions(
    handlers: Sequence[ApiHandler], services: AllServices, cluster_id: str
) -> tuple[ApiHandler, ...]:
    """Return the handlers with two more: ApiVersions, which lists all APIs, and UpdateFeatures."""
    apis = (*(each.api for each in handlers), *_VERSIONS)
    served = sorted(each.served for each in apis)
    versions = VersionsServices(cluster_id, services.broker_id, services.metadata, served)
    return (*handlers, *bind(_VERSIONS, versions))
