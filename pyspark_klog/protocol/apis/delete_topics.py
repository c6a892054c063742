"""DeleteTopics: delete topics by name, or since version 6 by id."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import array, int16, int32, string, uuid
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class DeleteTopicState(Struct):
    name: str | None = string(nullable_since=0, default=None)
    topic_id: UUID = uuid()


class DeleteTopicsRequest(Request, api=ApiKey.DELETE_TOPICS, versions=(0, 6), flexible_since=4):
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string, until=5, ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable_since=6)
    topic_id: UUID = uuid(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)


class DeleteTopicsResponse(Response, api=ApiKey.DELETE_TOPICS, versions=(0, 6), flexible_since=4):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
