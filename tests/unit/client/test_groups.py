"""A client's view of groups whose coordinators move while brokers are asked."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from pyspark_klog.client.admin.groups import Group, list_groups
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pyspark_klog.protocol.apis.consumer_group_describe import DescribedGroup as NewerGroup
from pyspark_klog.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pyspark_klog.protocol.apis.list_groups import ListedGroup, ListGroupsResponse
from pyspark_klog.protocol.message import Request, Response


class _PaperClient:
    """Two brokers that list the group g, and respond to DescribeGroups with a given error."""

    def __init__(self, group_type: str, *said: tuple[ErrorCode, str]) -> None:
        self._group_type = group_type
        self._said = list(said)

    def collect_from_brokers(
        self, ask: Callable[[Any, int], list[Group]], _what: str, _deadline_ms: int | None
    ) -> list[Group]:
        return ask(None, 1) + ask(None, 2)

    def call(
        self, _link: object, _response_class: type[Response], build: Callable[[int], Request]
    ) -> Response:
        request = build(5)
        if isinstance(request, DescribeGroupsRequest):
            code, state = self._said.pop(0)
            classic = DescribedGroup(error_code=code.value, group_id="g", group_state=state)
            return DescribeGroupsResponse(groups=[classic])
        if isinstance(request, ConsumerGroupDescribeRequest):
            code, state = self._said.pop(0)
            newer = NewerGroup(error_code=code.value, group_id="g", group_state=state)
            return ConsumerGroupDescribeResponse(groups=[newer])
        return ListGroupsResponse(
            groups=[ListedGroup(group_id="g", group_type=self._group_type, group_state="Stable")]
        )


@pytest.mark.parametrize("group_type", ["classic", "consumer"])
def test_a_group_that_moves_is_not_reported_as_empty(group_type: str) -> None:
    """A client that asks every broker repeats its requests after such an error."""
    client = _PaperClient(group_type, (ErrorCode.NOT_COORDINATOR, ""))
    with pytest.raises(BrokerError, match="NOT_COORDINATOR: describe group g"):
        list_groups(cast(Any, client))


@pytest.mark.parametrize("group_type", ["classic", "consumer"])
def test_a_group_that_two_brokers_list_is_returned_once(group_type: str) -> None:
    client = _PaperClient(group_type, (ErrorCode.NONE, "Empty"), (ErrorCode.NONE, "Stable"))
    [found] = list_groups(cast(Any, client))
    assert (found.group_id, found.state, found.coordinator_id) == ("g", "Stable", 2)
