"""docs/apis.md: current, and each API is served or has a reason."""

from klog_broker.api import elect_leaders, offset_commit, offset_fetch
from klog_broker.api.families import BETWEEN_BROKERS, SERVED
from klog_broker.api.unsupported_apis import REASONS, UNKNOWN_APIS
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.keys import ApiKey


def test_each_api_is_served_or_has_a_reason() -> None:
    served = {row.api_key for row in (*SERVED, *BETWEEN_BROKERS)}
    assert len(served) == len(SERVED) + len(BETWEEN_BROKERS)
    assert served.isdisjoint(REASONS)
    assert served | set(REASONS) == set(ApiKey)


def test_each_api_is_served_up_to_its_newest_version() -> None:
    assert [row.api_key.name for row in SERVED if row.max_version is not None] == []


def test_kafkas_other_apis_are_those_without_messages() -> None:
    known = {registry.find_api(key).name for key in ApiKey}
    others = [name for names in UNKNOWN_APIS for name in names.split(", ")]
    assert len(others) == len(set(others)) > 25
    assert known.isdisjoint(others)


def test_each_api_declares_the_access_that_it_needs() -> None:
    """The table of docs/apis.md was compared with the operations in Kafka 3.9.1's KafkaApis."""
    without = [row.api_key.name for row in (*SERVED, *BETWEEN_BROKERS) if not row.access]
    assert without == ["DESCRIBE_CLUSTER", "API_VERSIONS"]
    for module in (elect_leaders, offset_commit, offset_fetch):
        assert module.IN_CLUSTER.access == module.API.access


def test_the_dispatcher_finds_the_resource_in_each_request() -> None:
    for row in (*SERVED, *BETWEEN_BROKERS):
        request = registry.request_class(row.api_key)()
        for access in row.access:
            if access.name_in is not None:
                assert access.name_in(request) in ("kafka-cluster", "", None)
