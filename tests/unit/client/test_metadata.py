"""The view of a cluster: facts that a newer response changes, and facts that it must not change."""

from uuid import UUID

from pyspark_klog.client.cluster.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_ID = UUID(int=7)
_T0 = TopicPartition("t", 0)


def _view(leader: int, epoch: int, *, topic_id: UUID = _ID, error: int = 0) -> ClusterView:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2]
    )
    topic = MetadataResponseTopic(
        name="t", topic_id=topic_id, error_code=error, partitions=[] if error else [partition]
    )
    brokers = [MetadataResponseBroker(node_id=n, host=f"h{n}", port=9092) for n in (1, 2)]
    return ClusterView.of(MetadataResponse(brokers=brokers, topics=[topic], controller_id=2))


def test_a_newer_leader_is_taken_over_and_an_older_one_is_not() -> None:
    view = _view(1, 5)
    assert view.merged(_view(2, 6)).leader(_T0) is not None
    newer = view.merged(_view(2, 6)).leader(_T0)
    older = view.merged(_view(2, 4)).leader(_T0)
    assert newer is not None and newer.leader == 2
    assert older is not None and older.leader == 1


def test_a_recreated_topic_begins_with_any_epoch() -> None:
    view = _view(1, 5).merged(_view(2, 0, topic_id=UUID(int=8)))
    info = view.leader(_T0)
    assert info is not None and (info.leader, info.leader_epoch) == (2, 0)
    assert view.topic_id("t") == UUID(int=8)
    assert view.topic_id("t") == UUID(int=8)


def test_a_deleted_topic_has_no_partitions() -> None:
    view = _view(1, 5).merged(_view(1, 5, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert view.leader(_T0) is None
    assert not view.has_partition(_T0)


def test_a_topic_with_a_passing_error_may_have_partitions_that_the_metadata_lacks() -> None:
    lacking = TopicPartition("t", 7)
    for code, may_exist in ((ErrorCode.LEADER_NOT_AVAILABLE, True), (ErrorCode.NONE, False)):
        topic = TopicInfo("t", partitions={0: PartitionInfo(1)}, error=code)
        assert ClusterView(topics={"t": topic}).has_partition(lacking) is may_exist


def test_topics_that_a_reply_does_not_speak_of_stay() -> None:
    other = ClusterView.of(
        MetadataResponse(topics=[MetadataResponseTopic(name="u", topic_id=UUID(int=9))])
    )
    assert set(_view(1, 5).merged(other).topics) == {"t", "u"}


def test_a_partition_without_a_leader_exists() -> None:
    view = _view(-1, 5)
    assert view.leader(_T0) is None
    assert view.has_partition(_T0)
