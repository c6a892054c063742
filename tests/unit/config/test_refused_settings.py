"""Settings that klog must not ignore prevent a start, unless their value changes nothing."""

import socket

import pytest

from klog_broker.config import BrokerConfig, ConfigError

# The settings of Kafka's own file for a single node: KRaft's of 3.9, and server.properties of 4.x.
KAFKAS_SINGLE_NODE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\
SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(text=text)
    return str(caught.value).splitlines()


def test_kafkas_own_file_for_a_single_node_starts() -> None:
    config = BrokerConfig.load(text=KAFKAS_SINGLE_NODE)
    assert [str(each) for each in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(each) for each in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert config["broker.id"] == 1


ALONE = "klog joins no KRaft cluster and would start a cluster of its own"
NO_ACCESS = "klog has no access control yet and would let every client do everything"


@pytest.mark.parametrize(
    "line, reason",
    [
        ("authorizer.class.name=org.apache.kafka.Auth", NO_ACCESS),
        ("super.users=User:admin", NO_ACCESS),
        ("allow.everyone.if.no.acl.found=true", NO_ACCESS),
        ("create.topic.policy.class.name=a.B", "klog loads no Java classes and would let every"),
        ("alter.config.policy.class.name=a.B", "klog loads no Java classes and would allow every"),
        ("process.roles=broker", f"{ALONE}; expected broker,controller, or no such line"),
        ("process.roles=controller", f"{ALONE}; expected broker,controller, or no such line"),
        ("controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093", f"{ALONE}; expected one voter"),
        ("controller.quorum.voters=7@a:9093", f"{ALONE}; expected one voter"),
        ("controller.quorum.voters=a:9093", f"{ALONE}; expected one voter"),
        ("controller.quorum.bootstrap.servers=c1:9093,c2:9093", f"{ALONE}; expected one address"),
        ("controller.quorum.bootstrap.servers=c1:9093", f"{ALONE}; expected one address"),
        ("controller.quorum.bootstrap.servers=localhost:9092", f"{ALONE}; expected one address"),
        ("controller.quorum.bootstrap.servers=nonsense", f"{ALONE}; expected one address"),
    ],
)
def test_one_sentence_says_what_and_where(line: str, reason: str) -> None:
    (sentence,) = problems(KAFKAS_SINGLE_NODE + line)
    number = KAFKAS_SINGLE_NODE.count("\n") + 1
    assert sentence.startswith(f"properties:{number}: {line} is refused: {reason}")


@pytest.mark.parametrize(
    "text",
    [
        "authorizer.class.name=\nsuper.users=  \nzookeeper.connect=\nprocess.roles=\n"
        "controller.quorum.voters=\ncontroller.quorum.bootstrap.servers=\n",
        "process.roles= controller, broker",
        "node.id=3\ncontroller.quorum.voters=3@some.host:9093",
        "broker.id=3\ncontroller.quorum.voters=3@some.host:9093",
        "controller.quorum.voters=0@localhost:9093",
    ],
)
def test_settings_of_a_standalone_broker_are_accepted(text: str) -> None:
    config = BrokerConfig.load(text=text)
    assert not [warning for warning in config.warnings if "authorizer" in warning]


@pytest.mark.parametrize(
    "listeners, advertised, server, is_own",
    [
        ("CONTROLLER://:9093", "", "localhost:9093", True),
        ("CONTROLLER://0.0.0.0:9093", "", "[::1]:9093", True),
        ("CONTROLLER://:9093", "", f"{socket.gethostname()}:9093", True),
        ("CONTROLLER://127.0.0.1:9093", "", "localhost:9093", True),
        ("CONTROLLER://node.example.org:9093", "", "Node.Example.org:9093", True),
        ("CONTROLLER://:9093", "CONTROLLER://node.example.org:9093", "node.example.org:9093", True),
        ("CONTROLLER://:9093", "", "node.example.org:9093", False),
        ("CONTROLLER://10.0.0.1:9093", "", "localhost:9093", False),
        ("CONTROLLER://:9093", "", "localhost:9094", False),
        ("OTHER://:9093", "", "localhost:9093", False),
    ],
)
def test_a_bootstrap_server_must_be_the_broker_itself(
    listeners: str, advertised: str, server: str, is_own: bool
) -> None:
    settings = {
        "listeners": f"PLAINTEXT://localhost:9092,{listeners}",
        "advertised.listeners": f"PLAINTEXT://localhost:9092,{advertised}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": server,
    }
    if is_own:
        assert len(BrokerConfig.load(None, settings).listeners) == 1
        return
    with pytest.raises(ConfigError, match=r"--set: controller\.quorum\.bootstrap\.servers=.* is"):
        BrokerConfig.load(None, settings)


def test_a_file_of_a_cluster_names_all_that_is_in_the_way() -> None:
    names = [
        line.split()[1].split("=")[0]
        for line in problems(
            "node.id=2\nprocess.roles=broker\nlisteners=PLAINTEXT://:9092\n"
            "controller.listener.names=CONTROLLER\n"
            "controller.quorum.bootstrap.servers=c1:9093,c2:9093\n"
            "authorizer.class.name=a.B\nsuper.users=User:a\nnum.partitions=none\n"
        )
    ]
    assert names == [
        "num.partitions",
        "authorizer.class.name",
        "super.users",
        "controller.quorum.bootstrap.servers",
        "process.roles",
    ]
