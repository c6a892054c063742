"""docs/apis.md: current, and each API is served or has a reason."""

from klog_broker.api.families import BETWEEN_BROKERS, SERVED
from klog_broker.api.not_served import LEFT_OUT, REASONS
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
    known = {registry.api(key).name for key in ApiKey}
    others = [name for names in LEFT_OUT for name in names.split(", ")]
    assert len(others) == len(set(others)) > 25
    assert known.isdisjoint(others)
