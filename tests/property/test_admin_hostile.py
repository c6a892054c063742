"""Any values in requests of admin clients: each is answered, no bug, and records still flow."""

from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_klog.protocol.apis import alter_configs as altering
from pyspark_klog.protocol.apis import alter_partition_reassignments as moving
from pyspark_klog.protocol.apis import create_acls, delete_acls, describe_acls
from pyspark_klog.protocol.apis import delete_records as deleting
from pyspark_klog.protocol.apis import describe_log_dirs as directories
from pyspark_klog.protocol.apis import describe_topic_partitions as paging
from pyspark_klog.protocol.apis import describe_user_scram_credentials as credentials
from pyspark_klog.protocol.apis import elect_leaders as electing
from pyspark_klog.protocol.apis import list_config_resources as resources
from pyspark_klog.protocol.apis import list_partition_reassignments as moves
from pyspark_klog.protocol.apis import update_features as features
from pyspark_klog.protocol.message import Request
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.raw_requests import batch, fetch_request, produce_request

TEXTS = st.sampled_from(
    ["", "plain", "plain", "compacted", "none", "__consumer_offsets", "ü" * 40, "x" * 32_767]
)
NULLABLE = st.one_of(st.none(), TEXTS)
NUMBERS = st.sampled_from([-(2**31), -2, -1, -1, 0, 0, 1, 2**31 - 1])
OFFSETS = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 2**63 - 1])
BYTES = st.sampled_from([-128, -1, 0, 1, 2, 3, 4, 8, 16, 32, 127])
LEVELS = st.sampled_from([-(2**15), -1, 0, 1, 2, 3, 2**15 - 1])
PARTITIONS = st.lists(NUMBERS, max_size=3)
SETTINGS = st.sampled_from(["", "retention.ms", "cleanup.policy", "none", "x" * 32_767])
VALUES = st.sampled_from([None, "", "1", "-1", "delete", "compact", "ü", "9" * 400])


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=3)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), some(strategy))


def made(kind: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


def acl_requests() -> list[tuple[int, st.SearchStrategy[Request]]]:
    kind = {"operation": BYTES, "permission_type": BYTES}
    wanted = {
        "resource_type_filter": BYTES,
        "resource_name_filter": NULLABLE,
        "pattern_type_filter": BYTES,
        "principal_filter": NULLABLE,
        "host_filter": NULLABLE,
        **kind,
    }
    rule = made(
        create_acls.AclCreation,
        resource_type=BYTES,
        resource_name=TEXTS,
        resource_pattern_type=BYTES,
        principal=TEXTS,
        host=TEXTS,
        **kind,
    )
    deleted = some(made(delete_acls.DeleteAclsFilter, **wanted))
    return [
        (3, made(describe_acls.DescribeAclsRequest, **wanted)),
        (3, made(create_acls.CreateAclsRequest, creations=some(rule))),
        (3, made(delete_acls.DeleteAclsRequest, filters=deleted)),
    ]


def requests() -> list[tuple[int, st.SearchStrategy[Request]]]:
    gone = made(deleting.DeleteRecordsPartition, partition_index=NUMBERS, offset=OFFSETS)
    setting = made(altering.AlterableConfig, name=SETTINGS, value=VALUES)
    altered = made(
        altering.AlterConfigsResource,
        resource_type=BYTES,
        resource_name=TEXTS,
        configs=some(setting),
    )
    moved = made(
        moving.ReassignablePartition,
        partition_index=NUMBERS,
        replicas=st.one_of(st.none(), PARTITIONS),
    )
    feature = made(
        features.FeatureUpdateKey,
        feature=st.sampled_from(["", "transaction.version", "x" * 32_767]),
        max_version_level=LEVELS,
        upgrade_type=BYTES,
    )
    return [
        (
            2,
            made(
                deleting.DeleteRecordsRequest,
                topics=some(made(deleting.DeleteRecordsTopic, name=TEXTS, partitions=some(gone))),
                timeout_ms=NUMBERS,
            ),
        ),
        (
            5,
            made(
                directories.DescribeLogDirsRequest,
                topics=maybe(
                    made(directories.DescribableLogDirTopic, topic=TEXTS, partitions=PARTITIONS)
                ),
            ),
        ),
        (
            0,
            made(
                paging.DescribeTopicPartitionsRequest,
                topics=some(made(paging.TopicRequest, name=TEXTS)),
                response_partition_limit=NUMBERS,
                cursor=st.one_of(
                    st.none(), made(paging.Cursor, topic_name=TEXTS, partition_index=NUMBERS)
                ),
            ),
        ),
        (
            2,
            made(
                altering.AlterConfigsRequest, resources=some(altered), validate_only=st.booleans()
            ),
        ),
        (1, made(resources.ListConfigResourcesRequest, resource_types=some(BYTES))),
        (
            2,
            made(
                electing.ElectLeadersRequest,
                election_type=BYTES,
                topic_partitions=maybe(
                    made(electing.TopicPartitions, topic=TEXTS, partitions=PARTITIONS)
                ),
                timeout_ms=NUMBERS,
            ),
        ),
        (
            1,
            made(
                moving.AlterPartitionReassignmentsRequest,
                timeout_ms=NUMBERS,
                allow_replication_factor_change=st.booleans(),
                topics=some(made(moving.ReassignableTopic, name=TEXTS, partitions=some(moved))),
            ),
        ),
        (
            0,
            made(
                moves.ListPartitionReassignmentsRequest,
                topics=maybe(
                    made(
                        moves.ListPartitionReassignmentsTopics,
                        name=TEXTS,
                        partition_indexes=PARTITIONS,
                    )
                ),
            ),
        ),
        (
            0,
            made(
                credentials.DescribeUserScramCredentialsRequest,
                users=maybe(made(credentials.UserName, name=TEXTS)),
            ),
        ),
        (2, made(features.UpdateFeaturesRequest, feature_updates=some(feature))),
        *acl_requests(),
    ]


ASKED = st.deferred(
    lambda: st.one_of(*(st.tuples(st.just(version), each) for version, each in requests()))
)


@cache
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


def records_flow(broker: MemoryBroker) -> None:
    """A produced record can be fetched."""
    written = broker.call(produce_request("flushed", batch(b"value")), 9)
    answer = written.responses[0].partition_responses[0]
    assert answer.error_code == 0
    read = broker.call(fetch_request("flushed", answer.base_offset), 12).responses[0].partitions[0]
    assert (read.error_code, read.high_watermark) == (0, answer.base_offset + 1)
    # Records for the next DeleteRecords.
    broker.call(produce_request("plain", batch(b"value")), 9)


@settings(max_examples=200, deadline=None)
@given(st.lists(ASKED, min_size=1, max_size=8))
def test_each_is_answered_and_records_still_flow(asked: list[tuple[int, Request]]) -> None:
    served = broker()
    for version, request in asked:
        stream = served.send(request, version)
        assert stream.sent
        assert not stream.is_closed
        stream.is_at_end = True
        served.turns()
    assert served.broker.services.requests.bugs.total == 0
    records_flow(served)
