"""`klog brokers` and `klog leaders` with brokers that are old, refuse, or cannot be reached, and in
a cluster whose leaders change."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from pyspark_klog.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response
from pyspark_klog.testing import KlogCluster
from tests.support.cli.command_cases import json_output, klog, rows
from tests.support.client.stand_in_broker import StandInBroker
from tests.support.eventually import eventually
from tests.support.shared_cluster import agreed_controller, restart_stopped_brokers

OF_KRAFT = 55
"""DescribeQuorum, which klog has no messages for."""


class OldBroker(StandInBroker):
    """Broker 0 of a cluster whose broker 1 cannot be reached and whose broker 2 is down. Topic t
    has two partitions with replicas on all of them. ``served`` has the newest versions of APIs
    other than Metadata."""

    def __init__(self, served: dict[int, int]) -> None:
        self.served = served
        self.elections: list[ElectLeadersRequest] = []
        self.results: list[dict[int, ErrorCode]] = []
        """By partition the results of the next elections."""
        with socket.create_server(("127.0.0.1", 0)) as closed:
            self._unreachable: int = closed.getsockname()[1]
        super().__init__()

    def _answer(self, request: Request) -> Response:
        if isinstance(request, MetadataRequest):
            return self._described_cluster()
        if isinstance(request, ElectLeadersRequest):
            self.elections.append(request)
            rows = [
                PartitionResult(partition_id=number, error_code=code.value)
                for number, code in self.results.pop(0).items()
            ]
            topic = ReplicaElectionResult(topic="t", partition_result=rows)
            return ElectLeadersResponse(replica_election_results=[topic])
        if request.api_key == ApiKey.DESCRIBE_LOG_DIRS:
            offline = ErrorCode.KAFKA_STORAGE_ERROR.value
            found = [DescribeLogDirsResult(log_dir="/a", error_code=offline)]
            found.append(DescribeLogDirsResult(log_dir="/b"))
            return DescribeLogDirsResponse(results=found)
        newest: dict[int, int] = {ApiKey.API_VERSIONS: 0, ApiKey.METADATA: 8, **self.served}
        return ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=k, max_version=high) for k, high in newest.items()]
        )

    def _described_cluster(self) -> MetadataResponse:
        ports = {0: self._port, 1: self._unreachable}
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=n, host="127.0.0.1", port=port, rack=f"rack{n}")
                for n, port in ports.items()
            ],
            controller_id=0,
            topics=[
                MetadataResponseTopic(
                    name="t",
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=number,
                            leader_id=0,
                            replica_nodes=[0, 1, 2],
                            isr_nodes=[0, 1],
                        )
                        for number in (0, 1)
                    ],
                )
            ],
        )


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[OldBroker]:
    """A broker that serves the APIs of the test's parameter."""
    with closing(OldBroker(request.param)) as running:
        yield running


@pytest.mark.parametrize("broker", [{ApiKey.DESCRIBE_LOG_DIRS: 1}], indirect=True)
def test_a_broker_that_is_down_does_not_hide_the_others(broker: OldBroker) -> None:
    servers = broker.bootstrap_servers
    words = ("brokers", "describe", "--timeout", "400")
    result = klog(servers, *words)
    shown = [line.split() for line in result.stdout.splitlines()]
    assert shown[1] == ["0", servers, "rack0", "yes", "2", "2", "0"]
    assert [shown[2][0], *shown[2][2:]] == ["1", "rack1", "no", "0", "2", "0"]
    assert ["0", "/b", "0", "0", "-", "-"] in shown
    assert (result.exit_code, "Connection refused" in result.stderr) == (1, True)
    assert "klog: KAFKA_STORAGE_ERROR: /a of broker 0" in result.stderr
    unreached = json.loads(klog(servers, *words, "--json").stdout)[1]
    assert (unreached["broker"], unreached["apis"], unreached["directories"]) == (1, None, [])
    down = klog(servers, *words, "2")
    expected = "klog: BROKER_ID_NOT_REGISTERED: broker 2 is down (2 replicas); live: 0, 1\n"
    assert (down.exit_code, down.stdout, down.stderr) == (1, "", expected)
    dirs = klog(servers, "log-dirs", "--timeout", "400")
    assert ["0", "/b", "0", "0", "-", "-"] in [line.split() for line in dirs.stdout.splitlines()]
    assert (dirs.exit_code, "Connection refused" in dirs.stderr) == (1, True)


@pytest.mark.parametrize("broker", [{}], indirect=True)
def test_an_api_that_a_broker_lacks_is_named(broker: OldBroker) -> None:
    servers = broker.bootstrap_servers
    result = klog(servers, "brokers", "describe", "0")
    assert (result.exit_code, "no version of DESCRIBE_LOG_DIRS" in result.stderr) == (1, True)
    assert ["Metadata", "8"] in [line.split() for line in result.stdout.splitlines()]
    refused = klog(servers, "leaders", "elect", "t")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("klog: elections on request need Kafka 2.2 or later: ")
    # A Metadata response of Kafka before 2.8 names the real controller.
    assert [each["controller"] for each in json_output(servers, "brokers", "list")] == [True, False]


@pytest.mark.parametrize("broker", [{OF_KRAFT: 1}], indirect=True)
def test_a_broker_of_a_kraft_cluster_names_no_controller(broker: OldBroker) -> None:
    servers = broker.bootstrap_servers
    assert [row[2:] for row in rows(servers, "brokers", "list")] == [["rack0", "-"], ["rack1", "-"]]
    result = klog(servers, "brokers", "describe", "0")
    assert ["API", "55", "1"] in [line.split() for line in result.stdout.splitlines()]


@pytest.mark.parametrize("broker", [{ApiKey.ELECT_LEADERS: 0}], indirect=True)
def test_unclean_elections_need_a_newer_broker_than_others(broker: OldBroker) -> None:
    servers = broker.bootstrap_servers
    broker.results = [{0: ErrorCode.NONE}]
    assert rows(servers, "leaders", "elect", "t:0") == [["t", "0", "elected"]]
    refused = klog(servers, "leaders", "elect", "t:0", "--unclean")
    assert (refused.exit_code, refused.stdout, len(broker.elections)) == (1, "", 1)
    assert refused.stderr.startswith("klog: unclean elections need Kafka 2.4 or later: ")


@pytest.mark.parametrize("broker", [{ApiKey.ELECT_LEADERS: 1}], indirect=True)
def test_an_election_is_repeated_where_the_broker_was_not_the_controller(
    broker: OldBroker,
) -> None:
    servers = broker.bootstrap_servers
    broker.results = [
        {0: ErrorCode.NONE, 1: ErrorCode.NOT_CONTROLLER},
        {1: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE},
    ]
    result = klog(servers, "leaders", "elect", "t", "--unclean")
    shown = [line.split() for line in result.stdout.splitlines()[1:]]
    assert shown == [["t", "0", "elected"], ["t", "1", "ELIGIBLE_LEADERS_NOT_AVAILABLE"]]
    assert result.exit_code == 1
    assert result.stderr.startswith("klog: ELIGIBLE_LEADERS_NOT_AVAILABLE: t-1: ")
    asked = [[row.partitions for row in each.topic_partitions or ()] for each in broker.elections]
    assert asked == [[[0, 1]], [[1]]]
    assert {each.election_type for each in broker.elections} == {1}
    # The response for all partitions lacks those that need no election.
    broker.results = [{1: ErrorCode.NONE}]
    expected = [["t", "0", "not", "needed"], ["t", "1", "elected"]]
    assert rows(servers, "leaders", "elect", "--all") == expected
    assert broker.elections[-1].topic_partitions is None


# --- a cluster -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def shared() -> Iterator[KlogCluster]:
    with KlogCluster(zookeeper_session_timeout_ms=3_000) as started:
        yield started


@pytest.fixture
def cluster(shared: KlogCluster) -> KlogCluster:
    return restart_stopped_brokers(shared)


def create_topic(servers: str, name: str, *replicas: list[int]) -> None:
    topic = NewTopic(name, len(replicas), replica_assignment=list(replicas))
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([topic])[name].result(30)


def until_led_by(servers: str, topic: str, leader: int) -> None:
    """Wait until a broker reports this leader (-1: none) of the topic's partition 0."""

    def is_so() -> bool:
        (found,) = json_output(servers, "topics", "describe", topic)
        return bool(found["partitions"][0]["leader"] == leader)

    eventually(is_so, deadline_s=60, what=f"leader {leader} of {topic}")


def elected(servers: str, *arguments: str) -> bool:
    """Elect leaders; return whether partition 0 has a new one."""
    found = json.loads(klog(servers, "leaders", "elect", *arguments, "--json").stdout)
    return bool(found[0]["result"] == "elected")


def test_a_broker_that_is_back_leads_once_its_leaders_are_elected(cluster: KlogCluster) -> None:
    servers = cluster.broker(3).bootstrap_servers
    create_topic(servers, "returned", [2, 3], [3, 2])
    until_led_by(servers, "returned", 2)
    cluster.broker(2).stop()
    until_led_by(servers, "returned", 3)
    refused = klog(servers, "leaders", "elect", "returned")
    assert [line.split() for line in refused.stdout.splitlines()[1:]] == [
        ["returned", "0", "PREFERRED_LEADER_NOT_AVAILABLE"],
        ["returned", "1", "not", "needed"],
    ]
    assert refused.exit_code == 1
    assert refused.stderr.startswith("klog: PREFERRED_LEADER_NOT_AVAILABLE: returned-0: ")
    restart_stopped_brokers(cluster)
    # The replica may be out of sync for a moment yet: PREFERRED_LEADER_NOT_AVAILABLE.
    eventually(lambda: elected(servers, "returned"), deadline_s=60, what="the election")
    described = json_output(servers, "brokers", "describe")
    leaders = {each["broker"]: each["leaders"] for each in described}
    assert (sorted(leaders), leaders[2] >= 1) == ([1, 2, 3], True)
    named = [each["broker"] for each in described if each["controller"]]
    assert named == [agreed_controller(cluster)]


def test_an_unclean_election_gives_a_partition_a_leader_again(cluster: KlogCluster) -> None:
    chosen = agreed_controller(cluster)
    first, second = (number for number in (1, 2, 3) if number != chosen)
    servers = cluster.broker(chosen).bootstrap_servers
    create_topic(servers, "forced", [first, second])
    until_led_by(servers, "forced", first)
    cluster.broker(second).stop()
    cluster.broker(first).kill()
    cluster.broker(second).start()
    until_led_by(servers, "forced", -1)
    preferred = klog(servers, "leaders", "elect", "forced")
    assert "klog: PREFERRED_LEADER_NOT_AVAILABLE: forced-0: " in preferred.stderr
    # Until the broker is registered, no replica is alive: ELIGIBLE_LEADERS_NOT_AVAILABLE.
    wait = "the unclean election"
    eventually(lambda: elected(servers, "--unclean", "forced"), deadline_s=60, what=wait)
    until_led_by(servers, "forced", second)
