"""The oracle of the data APIs without its Kafkas: its generated requests, and its rows."""

import pytest

from pyspark_klog.protocol.headers import RequestHeader, decode_request, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.registry import find_api
from tests.support.oracle.cases import Plan, changes, places
from tests.support.oracle.differences import compare
from tests.support.oracle.docs import PAGE, page
from tests.support.oracle.names import Names
from tests.support.oracle.requests import BASES

VERSIONS = {
    key: tuple(range(find_api(key).request.min_version, find_api(key).request.max_version + 1))
    for key in BASES
}
SINGLES = sum(len(list(changes(place))) for key in BASES for place in places(key))


def test_the_table_of_differences_is_as_declared() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_a_request_depends_on_the_seed_and_its_number_alone() -> None:
    for number in (0, 7, SINGLES + 5):
        one, other, third = (Plan(seed, VERSIONS).case(number) for seed in (1, 1, 2))
        assert one.describe() == other.describe() != third.describe()


def test_every_request_can_be_encoded() -> None:
    plan, names = Plan(3, VERSIONS), Names()
    for number in range(300):
        case = plan.case(number)
        header = RequestHeader(case.request.api_key, case.version, 1, "c")
        request = names.real(case.request)
        _, decoded = decode_request(encode_request(header, request)[4:])
        assert type(decoded) is type(request)


@pytest.mark.parametrize("key", BASES)
def test_every_field_is_changed(key: ApiKey) -> None:
    fields = [place for place in places(key) if place.row.kind != "struct"]
    unchanged = [place.name for place in fields if not list(changes(place))]
    assert unchanged == []


def test_responses_are_compared_field_by_field() -> None:
    ours = {"topics": [{"name": "t", "partitions": [{"error_code": 0}]}], "error_code": 1}
    theirs = {"topics": [{"name": "t", "partitions": [{"error_code": 3}]}], "error_code": 1}
    assert list(compare("", theirs, ours)) == [("topics.partitions.error_code", 3, 0)]
    assert list(compare("", ours, ours)) == []
