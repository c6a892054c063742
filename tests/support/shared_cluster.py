"""A cluster that the tests of a module share: each test finds all of its brokers running.

Three brokers and a ZooKeeper take some nine seconds of a core to start and to end.
"""

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.protocol.apis.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pyspark_klog.testing import Broker, KlogCluster
from tests.support.eventually import eventually


def restart_stopped_brokers(cluster: KlogCluster) -> KlogCluster:
    """Start the cluster's stopped brokers again; return when all brokers know each other."""
    for broker in cluster.brokers:
        if not broker.is_running:
            broker.start()
    agreed_controller(cluster)
    return cluster


def described_cluster(broker: Broker) -> tuple[list[int], int]:
    """Return the brokers and the controller that a broker's DescribeCluster response names."""
    with BlockingClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        link = client.link_to_any(client.deadline())
        reply = client.call(link, DescribeClusterResponse, lambda _: DescribeClusterRequest())
    return sorted(each.broker_id for each in reply.brokers), reply.controller_id


def agreed_controller(cluster: KlogCluster, numbers: tuple[int, ...] = (1, 2, 3)) -> int:
    """Wait until all these brokers name each other and the same controller; return its id."""

    def agreed() -> int | None:
        told = [described_cluster(cluster.broker(number)) for number in numbers]
        found = told[0][1]
        is_so = found in numbers and all(each == (list(numbers), found) for each in told)
        return found if is_so else None

    found = eventually(agreed, deadline_s=60, what=f"brokers {numbers} with one controller")
    assert found is not None
    return found
