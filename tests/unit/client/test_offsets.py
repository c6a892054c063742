"""Looking for offsets: how long it takes at most."""

import socket

import pytest

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.errors import TimedOut
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.ids import TopicPartition


def test_a_leader_that_says_nothing_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        BlockingClient({"bootstrap.servers": "127.0.0.1:1"}) as client,
    ):
        address = Address("127.0.0.1", silent.getsockname()[1])
        topic = TopicInfo("t", partitions={0: PartitionInfo(1)})
        client.view = ClusterView({1: address}, {"t": topic})
        monkeypatch.setattr(client, "is_fresh", lambda _: True)
        # The request for versions itself would go on until request.timeout.ms, and say so.
        words = rf"the offsets of t-0 .* in time: {address} did not answer in time: asking for ver"
        with pytest.raises(TimedOut, match=words):
            list_offsets(client, {TopicPartition("t", 0): LATEST}, deadline_ms=client.deadline(200))
