"""The admin APIs on Apache Kafka and on klog: equal responses, except for texts.

A play is a series of requests by raw connections. Its transcript has every field of every response,
without random values, addresses and texts.
"""

import math
from collections.abc import Callable, Iterator
from difflib import unified_diff
from typing import Any

import pytest

from pyspark_klog.protocol.apis import alter_client_quotas as limiting
from pyspark_klog.protocol.apis import alter_configs as altering
from pyspark_klog.protocol.apis import alter_partition_reassignments as moving
from pyspark_klog.protocol.apis import create_acls, delete_acls, describe_acls
from pyspark_klog.protocol.apis import delete_records as deleting
from pyspark_klog.protocol.apis import describe_client_quotas as limits
from pyspark_klog.protocol.apis import describe_configs as describing
from pyspark_klog.protocol.apis import describe_log_dirs as directories
from pyspark_klog.protocol.apis import describe_topic_partitions as paging
from pyspark_klog.protocol.apis import describe_user_scram_credentials as credentials
from pyspark_klog.protocol.apis import elect_leaders as electing
from pyspark_klog.protocol.apis import incremental_alter_configs as changing
from pyspark_klog.protocol.apis import list_config_resources as resources
from pyspark_klog.protocol.apis import list_offsets as offsets
from pyspark_klog.protocol.apis import list_partition_reassignments as moves
from pyspark_klog.protocol.apis import update_features as features
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.message import Request, Struct
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch, create_topic, fetch, first_partition, produced

pytestmark = pytest.mark.peers

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "log.retention.hours": "2",
    "log.segment.bytes": "1048576",
    "log.cleaner.threads": "2",
    "max.connections": "5000",
}
TOPICS = {"cut": "delete", "both": "compact,delete", "compacted": "compact", "whole": "delete"}
ME = 0
TOPIC, BROKER = 2, 4
THIS, ALL = "0", ""
SET, DELETE, APPEND, SUBTRACT = range(4)

# Fields with random values, values of the machine, or free texts.
_LEFT_OUT = {
    "throttle_time_ms",
    "error_message",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "topic_id",
}


class Play:
    """A series of requests; each response becomes a line of ``lines``."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._client = RawClient(address, timeout_s=60)
        self.lines: list[str] = []

    def close(self) -> None:
        self._client.close()

    def send_request(self, request: Request, version: int, *, in_order: bool = False) -> Any:
        answer = self._client.call(request, version)
        self.lines.append(f"{request.api_key.name} v{version} {_plain(answer, in_order)}")
        return answer

    # --- one API each ----------------------------------------------------------------------------
    def delete(self, *rows: tuple[str, int, int], version: int = 2) -> None:
        topics = [
            deleting.DeleteRecordsTopic(
                name=name,
                partitions=[deleting.DeleteRecordsPartition(partition_index=index, offset=offset)],
            )
            for name, index, offset in rows
        ]
        self.send_request(deleting.DeleteRecordsRequest(topics=topics, timeout_ms=5000), version)

    def earliest(self, topic: str) -> None:
        row = offsets.ListOffsetsPartition(partition_index=0, timestamp=-2)
        topics = [offsets.ListOffsetsTopic(name=topic, partitions=[row])]
        self.send_request(offsets.ListOffsetsRequest(topics=topics), 7)

    def fetch(self, topic: str, offset: int) -> None:
        found = first_partition(fetch(self._client, topic, offset=offset))
        self.lines.append(f"{found.error_code} {found.log_start_offset} {found.high_watermark}")

    def directories(self, *rows: tuple[str, list[int]], version: int) -> None:
        topics = [directories.DescribableLogDirTopic(topic=n, partitions=p) for n, p in rows]
        self.send_request(directories.DescribeLogDirsRequest(topics=topics), version)

    def pages(self, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        at = None
        if cursor is not None:
            at = paging.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        request = paging.DescribeTopicPartitionsRequest(
            topics=[paging.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=at,
        )
        self.send_request(request, 0, in_order=True)

    def alter(
        self,
        *rows: tuple[str, list[tuple[str, str | None]]],
        kind: int = TOPIC,
        version: int = 2,
        validate_only: bool = False,
    ) -> None:
        listed = [
            altering.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[altering.AlterableConfig(name=key, value=value) for key, value in given],
            )
            for name, given in rows
        ]
        request = altering.AlterConfigsRequest(resources=listed, validate_only=validate_only)
        self.send_request(request, version)

    def expect(self, topic: str, expected: dict[str, str]) -> None:
        """Wait until the topic has these settings: Kafka's response comes a little earlier."""
        eventually(lambda: self._overrides(topic) == expected, 20, f"{topic} having {expected}")

    def _overrides(self, topic: str) -> dict[str, str]:
        row = describing.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=topic, configuration_keys=None
        )
        request = describing.DescribeConfigsRequest(resources=[row])
        (found,) = self._client.call(request, 4).results
        return {each.name: each.value for each in found.configs if each.config_source == 1}

    def change(
        self,
        name: str,
        *changes: tuple[str, int, str | None],
        kind: int = BROKER,
        version: int = 1,
        validate_only: bool = False,
    ) -> None:
        rows = [
            changing.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        resource = changing.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=rows
        )
        request = changing.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=validate_only
        )
        self.send_request(request, version)

    def told(self, name: str, *keys: str, kind: int = BROKER, version: int = 4) -> list[str]:
        """Return value, source and synonyms of settings, in the order of their precedence."""
        row = describing.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys)
        )
        request = describing.DescribeConfigsRequest(resources=[row], include_synonyms=True)
        (found,) = self._client.call(request, version).results
        rows = [
            f"{each.name}={each.value} {each.config_source} {each.read_only} {each.config_type}"
            f" {[(one.name, one.value, one.source) for one in each.synonyms]}"
            for each in found.configs
        ]
        return [f"{name!r} {found.error_code}", *sorted(rows)]

    def expect_told(self, name: str, key: str, value: str | None, source: int, **more: int) -> None:
        """Waits for a setting's value, and notes how it comes about: Kafka answers a little before
        that."""
        wanted = f"{key}={value} {source} "

        def has_come() -> bool:
            return any(line.startswith(wanted) for line in self.told(name, key, **more))

        eventually(has_come, 20, f"{name!r} having {wanted}")
        self.lines += self.told(name, key, **more)

    def limit(
        self,
        *rows: tuple[dict[str, str | None], dict[str, float | None]],
        version: int = 1,
        validate_only: bool = True,
    ) -> None:
        entries = [
            limiting.EntryData(
                entity=[
                    limiting.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in names.items()
                ],
                ops=[
                    limiting.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in quotas.items()
                ],
            )
            for names, quotas in rows
        ]
        request = limiting.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        self.send_request(request, version)

    def limits(
        self, *rows: tuple[str, int, str | None], strict: bool = False, version: int = 1
    ) -> None:
        self.send_request(_limits(*rows, strict=strict), version)

    def expect_limits(self, count: int, value: float) -> None:
        """Wait until ``count`` entities have quotas, and one of these has the value."""

        def has_come() -> bool:
            found = self._client.call(_limits(), 1).entries
            values = [each.value for row in found for each in row.values]
            return len(found) == count and value in values

        eventually(has_come, 20, f"{count} entities with quotas, {value} among these")

    def elect(
        self, rows: list[tuple[str, list[int]]] | None, election: int = 0, version: int = 2
    ) -> None:
        topics = None
        if rows is not None:
            topics = [electing.TopicPartitions(topic=n, partitions=p) for n, p in rows]
        request = electing.ElectLeadersRequest(topic_partitions=topics, timeout_ms=5000)
        if version > 0:
            request.election_type = election
        self.send_request(request, version)

    def move(
        self, *rows: tuple[str, int, list[int] | None], version: int = 1, **more: bool
    ) -> None:
        topics = [
            moving.ReassignableTopic(
                name=name,
                partitions=[moving.ReassignablePartition(partition_index=index, replicas=replicas)],
            )
            for name, index, replicas in rows
        ]
        request = moving.AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=topics, **more)
        self.send_request(request, version)

    def update(self, *rows: tuple[str, int, int], version: int = 2) -> None:
        updates = []
        for feature, level, way in rows:
            row = features.FeatureUpdateKey(feature=feature, max_version_level=level)
            if version > 0:
                row.upgrade_type = way
            updates.append(row)
        request = features.UpdateFeaturesRequest(timeout_ms=5000, feature_updates=updates)
        self.send_request(request, version)


def _limits(
    *rows: tuple[str, int, str | None], strict: bool = False
) -> limits.DescribeClientQuotasRequest:
    components = [
        limits.ComponentData(entity_type=kind, match_type=match_type, match=name)
        for kind, match_type, name in rows
    ]
    return limits.DescribeClientQuotasRequest(components=components, strict=strict)


def _plain(found: Any, in_order: bool) -> Any:
    if isinstance(found, Struct):
        return {
            name: _plain(getattr(found, name), in_order)
            for name in type(found).__fields__
            if name not in _LEFT_OUT
        }
    if isinstance(found, list):
        rows = [_plain(each, in_order) for each in found]
        return rows if in_order else sorted(rows, key=repr)
    return found


def records_are_deleted(play: Play) -> None:
    for version in (0, 1, 2):
        play.delete(("cut", 0, version), version=version)
    for offset in (1, 4, 2**63 - 1, -2, -(2**63)):
        play.delete(("cut", 0, offset))
    play.delete(("cut", 1, -1), ("cut", 7, 0), ("cut", -1, 0), ("none", 0, 0), ("a b", 0, 0))
    play.delete(("both", 0, 1), ("compacted", 0, 1), ("compacted", 0, 99), ("compacted", 7, 0))
    play.delete(("cut", 0, 1), ("cut", 0, 99))
    play.delete(("cut", 0, 99), ("cut", 0, 1))
    play.delete(("__consumer_offsets", 0, 0), ("__consumer_offsets", 99, 0))
    play.delete()
    play.earliest("cut")
    for offset in (1, 2, 3):
        play.fetch("cut", offset)
    play.delete(("cut", 0, -1))
    play.earliest("cut")
    play.fetch("cut", 3)


def directories_are_described(play: Play) -> None:
    for version in range(1, 6):
        play.directories(("whole", [0, 1, 7, -1]), ("none", [0]), version=version)
        play.directories(version=version)
        play.directories(("whole", []), version=version)
        play.directories(("whole", [0]), ("whole", [0, 0, 1]), version=version)
    play.send_request(directories.DescribeLogDirsRequest(topics=None), 5)


def topics_are_paged(play: Play) -> None:
    play.pages("cut")
    play.pages("cut", "both", "both", "none", "a b")
    for limit in (0, 1, 2, 3, -(2**31), 2**31 - 1):
        play.pages("cut", "both", limit=limit)
        play.pages("cut", "none", "both", limit=limit, cursor=("both", 1))
    for cursor in (("cut", 7), ("compacted", 0), ("cut", -1), ("zzz", 0)):
        play.pages("cut", "both", cursor=cursor)
    play.pages("none", cursor=("none", 3))
    for limit in (1, 3, 2000):
        for cursor in (("both", 1), ("c", 5), ("zzz", 0), ("both", -1)):
            play.pages(limit=limit, cursor=cursor)
    play.pages("__consumer_offsets", limit=2)


def settings_are_replaced(play: Play) -> None:
    play.expect("whole", {"cleanup.policy": "delete"})
    for version in (0, 1, 2):
        given = {"retention.ms": f"8640000{version}", "flush.ms": "7"}
        play.alter(("whole", list(given.items())), version=version)
        play.expect("whole", given)
    play.alter(("whole", [("flush.ms", "77")]), validate_only=True)
    for wrong in (
        [("retention.ms", None)],
        [("retention.ms", "x")],
        [("nonsense", "1")],
        [("", "")],
        [("flush.ms", "1"), ("flush.ms", "2")],
        [("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4")],
    ):
        for name in ("whole", "none", "a b", ""):
            play.alter((name, wrong))
    for kind in (0, 1, 3, 77, 127, -1):
        play.alter(("whole", []), kind=kind)
    play.expect("whole", given)
    play.alter(("whole", [("flush.ms", "5")]), ("none", []))
    play.expect("whole", {"flush.ms": "5"})
    play.alter(("whole", []))
    play.expect("whole", {})
    play.alter()


def broker_settings_are_told(play: Play) -> None:
    for name in (THIS, "00", "1", "-1", "x", " 0"):
        play.lines += play.told(name, "log.segment.bytes", "max.connections", "log.roll.ms")
    for key in ("log.retention.ms", "log.retention.hours", "log.cleaner.threads", "group.max.size"):
        play.lines += play.told(THIS, key)
    play.lines += play.told(ALL, "log.segment.bytes", "log.retention.ms")


def broker_settings_are_changed(play: Play) -> None:
    retention = "log.retention.ms"
    for version in (0, 1):
        play.change(ALL, (retention, SET, f"20000{version}"), version=version)
        play.expect_told(ALL, retention, f"20000{version}", 3)
        play.expect_told(THIS, retention, f"20000{version}", 3)
        play.change(THIS, (retention, SET, f"10000{version}"), version=version)
        play.expect_told(THIS, retention, f"10000{version}", 2)
        play.change(THIS, (retention, DELETE, None))
        play.expect_told(THIS, retention, f"20000{version}", 3)
    play.change(THIS, (retention, SET, "100001"))
    play.expect_told("whole", "retention.ms", "100001", 2, kind=TOPIC)
    play.alter(("whole", [("retention.ms", "7000")]))
    play.expect_told("whole", "retention.ms", "7000", 1, kind=TOPIC)
    play.alter(("whole", []))
    play.change(THIS, (retention, DELETE, None), ("log.roll.ms", DELETE, None))
    play.expect_told(THIS, retention, "200001", 3)
    play.expect_told("whole", "retention.ms", "200001", 3, kind=TOPIC)
    play.change(ALL, ("log.segment.bytes", SET, "2097152"), (retention, DELETE, None))
    play.expect_told("whole", "segment.bytes", "2097152", 3, kind=TOPIC)
    play.alter((THIS, [(retention, "4444444")]), kind=BROKER)
    play.expect_told(THIS, retention, "4444444", 2)
    play.alter((THIS, []), kind=BROKER)
    play.expect_told(THIS, retention, None, 5)
    play.change(ALL, ("log.segment.bytes", DELETE, None))
    play.expect_told(THIS, "log.segment.bytes", "1048576", 4)
    policy = "log.cleanup.policy"
    for name, source in ((THIS, 2), (ALL, 3)):
        play.change(name, (policy, APPEND, "compact"))
        play.expect_told(THIS, policy, "delete,compact", source)
        play.change(name, (policy, SUBTRACT, "delete"))
        play.expect_told(THIS, policy, "compact", source)
        play.change(name, (policy, DELETE, None))
        play.expect_told(THIS, policy, "delete", 5)


def broker_settings_are_refused(play: Play) -> None:
    for name in (THIS, ALL, "00", "7", "x", " 0"):
        for key, value in (
            ("node.id", "3"),
            ("log.dirs", "/x"),
            ("log.retention.minutes", "3"),
            ("advertised.listeners", "PLAINTEXT://a:1"),
            ("ssl.keystore.location", "/x"),
            ("log.segment.bytes", "x"),
            ("log.segment.bytes", "1"),
            ("log.segment.bytes", "2097152"),
            ("log.retention.ms", ""),
            ("log.retention.ms", None),
            ("log.retention.ms", "0"),
            ("log.cleanup.policy", "foo"),
            ("log.cleaner.threads", "0"),
            ("log.cleaner.threads", "1"),
            ("log.cleaner.threads", "4"),
            ("log.cleaner.threads", "5"),
            ("log.cleaner.dedupe.buffer.size", "5"),
            ("max.connections.per.ip.overrides", "a:b"),
            ("compression.type", " LZ4"),
            ("message.max.bytes", "-1"),
            ("unclean.leader.election.enable", "true"),
            ("leader.replication.throttled.rate", "5"),
            ("background.threads", "6"),
            ("sasl.enabled.mechanisms", "PLAIN"),
            ("ssl.protocol", "TLSv1.3"),
            ("listener.name.plaintext.ssl.keystore.location", "/x"),
            ("listener.name.plaintext.max.connections", "5"),
        ):
            play.change(name, (key, SET, value), validate_only=True)
            play.alter(
                (
                    name,
                    [("min.insync.replicas", "1"), (key, value)] if name == ALL else [(key, value)],
                ),
                kind=BROKER,
                validate_only=True,
            )
        play.change(name, ("log.retention.ms", APPEND, "1"), validate_only=True)
        play.change(name, ("max.connections.per.ip.overrides", APPEND, "a:1"), validate_only=True)
        play.change(name, ("nonsense", APPEND, "1"), validate_only=True)
        play.change(name, ("log.roll.ms", 7, "1"), validate_only=True)
        play.change(name, ("node.id", DELETE, None), ("nonsense", DELETE, None))
        play.change(name, ("log.roll.ms", SET, "1"), ("log.roll.ms", DELETE, None))
        play.change(name)


def quotas_are_set(play: Play) -> None:
    made, used = "producer_byte_rate", "request_percentage"
    play.limits()
    for version in (0, 1):
        play.limit(
            ({"user": "a"}, {made: 100 + version, used: 0.5}),
            ({"user": "a", "client-id": "c"}, {made: 1}),
            ({"client-id": "c", "user": None}, {made: 2}),
            ({"client-id": "c"}, {used: 50}),
            ({"client-id": None}, {"controller_mutation_rate": 5}),
            ({"user": None}, {"consumer_byte_rate": 5}),
            ({"user": None, "client-id": None}, {made: 5}),
            ({"user": "<default>"}, {made: 2.0**63}),
            ({"ip": "1.2.3.4"}, {"connection_creation_rate": 3}),
            ({"ip": None}, {"connection_creation_rate": 4}),
            ({"user": "z"}, {}),
            version=version,
            validate_only=False,
        )
        play.expect_limits(10, 100 + version)
        play.limits(version=version)
    for kind, names in (("user", ("a", "", "b")), ("client-id", ("c", "b")), ("ip", ("1.2.3.4",))):
        for strict in (False, True):
            play.limits((kind, 1, None), strict=strict)
            play.limits((kind, 2, None), strict=strict)
            for name in names:
                play.limits((kind, 0, name), strict=strict)
    play.limits(("user", 2, None), ("client-id", 2, None))
    play.limits(("user", 1, None), ("client-id", 0, "c"), strict=True)
    play.limits(strict=True)
    play.limit(
        ({"user": "a"}, {made: None}),
        ({"ip": None}, {"connection_creation_rate": None}),
        validate_only=False,
    )
    play.expect_limits(9, 0.5)
    play.limits()
    for match_type, name in ((0, None), (1, "a"), (2, "a"), (3, "a"), (-1, None)):
        play.limits(("user", match_type, name))
    for rows in (
        [("nope", 2, None)],
        [("", 2, None)],
        [("user", 2, None)] * 2,
        [("user", 2, None), ("ip", 2, None)],
        [("client-id", 2, None), ("ip", 2, None)],
    ):
        play.limits(*rows)


def quotas_are_refused(play: Play) -> None:
    numbers = (0, -1, 0.5, 1.5, 7.9999999, 7.0000001, 1e-300, 1e19, math.inf, 2.0**63, 2.0**31)
    for number in numbers:
        for key in ("producer_byte_rate", "request_percentage", "controller_mutation_rate"):
            play.limit(({"user": "a"}, {key: number}))
        play.limit(({"ip": None}, {"connection_creation_rate": number}))
    for names in (
        {},
        {"nope": "a"},
        {"": None},
        {"user": ""},
        {"client-id": ""},
        {"ip": ""},
        {"ip": "1.2.3.4.5"},
        {"ip": "::1"},
        {"ip": "0:0:0:0:0:0:0:1"},
        {"ip": "1.2.3.4", "user": "a"},
        {"ip": None, "client-id": None},
        {"user": "a b/ü:*"},
    ):
        for key in ("producer_byte_rate", "connection_creation_rate", "nope", ""):
            play.limit((names, {key: 1}))
            play.limit((names, {key: None}))
    play.limit(({"user": "a"}, {"producer_byte_rate": 1}), ({"nope": "a"}, {"x": 1}))
    play.limit(
        ({"user": "a"}, {"producer_byte_rate": 1}), ({"user": "a"}, {"request_percentage": 1})
    )
    play.limit()


def resources_are_listed(play: Play) -> None:
    play.send_request(resources.ListConfigResourcesRequest(), 0)
    for types in ([2], [4], [16], [32], [2, 2, 4], [0], [1], [77], [-1], [2, 77]):
        play.send_request(resources.ListConfigResourcesRequest(resource_types=types), 1)


def leaders_are_elected(play: Play) -> None:
    for version in (0, 1, 2):
        play.elect([("cut", [0, 1, 0, 9, -1]), ("none", [0]), ("cut", [])], version=version)
        play.elect(None, version=version)
    for election in (1, 2, 127, -1):
        play.elect([("cut", [0])], election)
        play.elect([], election)
        play.elect(None, election)


def partitions_are_moved(play: Play) -> None:
    for version in (0, 1):
        play.move(("cut", 0, [ME]), ("cut", 1, None), version=version)
    for replicas in ([], [9], [-1], [ME, ME], [ME, 9], None):
        play.move(("cut", 0, replicas), ("none", 0, replicas), ("cut", 7, replicas))
        play.move(("cut", 0, replicas), allow_replication_factor_change=False)
    play.move(("cut", 0, [ME]), ("cut", 0, [ME]), ("__consumer_offsets", 0, [ME]))
    play.move()
    play.send_request(moves.ListPartitionReassignmentsRequest(topics=None), 0)
    for name in ("cut", "none", ""):
        row = moves.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 0, -1, 9])
        play.send_request(moves.ListPartitionReassignmentsRequest(topics=[row]), 0)


def there_is_no_authorizer(play: Play) -> None:
    kind = {"operation": 3, "permission_type": 3}
    wanted = {"resource_type_filter": 2, "resource_name_filter": None, **kind}
    rule = {"resource_type": 2, "resource_name": "cut", "principal": "User:a", "host": "*", **kind}
    for version in (1, 2, 3):
        play.send_request(describe_acls.DescribeAclsRequest(**wanted), version)
        for count in (0, 1, 2):
            rules = [create_acls.AclCreation(**rule)] * count
            play.send_request(create_acls.CreateAclsRequest(creations=rules), version)
            filters = [delete_acls.DeleteAclsFilter(**wanted)] * count
            play.send_request(delete_acls.DeleteAclsRequest(filters=filters), version)


def no_user_has_credentials(play: Play) -> None:
    for names in (None, [], ["a"], [""], ["a", "b"], ["a", "a", "b", "a"]):
        users = None if names is None else [credentials.UserName(name=name) for name in names]
        play.send_request(credentials.DescribeUserScramCredentialsRequest(users=users), 0)


def features_keep_their_levels(play: Play) -> None:
    name = "transaction.version"
    for version in (0, 1, 2):
        play.update((name, 2, 1), version=version)
        play.update((name, 2, 1), (name, 2, 1), version=version)
        play.update((name, 2, 1), ("none", 1, 1), version=version)
        for level in (3, 1, 0, -1):
            play.update((name, level, 1), version=version)
        play.update(version=version)
    for way in (0, 4, -1):
        play.update((name, 2, way))
    for way in (2, 3):
        play.update((name, 2, way))


PLAYS: list[Callable[[Play], None]] = [
    records_are_deleted,
    directories_are_described,
    topics_are_paged,
    settings_are_replaced,
    broker_settings_are_told,
    broker_settings_are_changed,
    broker_settings_are_refused,
    quotas_are_set,
    quotas_are_refused,
    resources_are_listed,
    leaders_are_elected,
    partitions_are_moved,
    there_is_no_authorizer,
    no_user_has_credentials,
    features_keep_their_levels,
]


def prepare(address: tuple[str, int]) -> tuple[str, int]:
    """Topics with three records each, and the topic of the groups."""
    with RawClient(address, timeout_s=60) as client:
        for name, policy in TOPICS.items():
            create_topic(client, name, 2, cleanup_policy=policy)

        def has_groups() -> bool:
            return bool(client.call(FindCoordinatorRequest(key="g"), 3).error_code == 0)

        eventually(has_groups, 60, "the topic of the groups")
        for name in TOPICS:
            produced(client, name, batch(b"a", b"b", b"c"), version=9)
    return address


@pytest.fixture(scope="module")
def klog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with BrokerProcess(tmp_path_factory.mktemp("admin") / "data", SETTINGS) as broker:
        yield prepare(broker.address)


@pytest.fixture(scope="module")
def kafka() -> Iterator[tuple[str, int]]:
    with KafkaServer(NEWEST_KAFKA, properties=SETTINGS) as server:
        yield prepare(("127.0.0.1", server.port))


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_the_answers_are_kafkas(
    klog: tuple[str, int], kafka: tuple[str, int], play: Callable[[Play], None]
) -> None:
    transcripts = []
    for address in (klog, kafka):
        course = Play(address)
        try:
            play(course)
        finally:
            course.close()
        transcripts.append(course.lines)
    klogs, kafkas = transcripts
    diff = "\n".join(unified_diff(klogs, kafkas, "klog", "Kafka", lineterm="", n=0))
    assert not diff, diff
