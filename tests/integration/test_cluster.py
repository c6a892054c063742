"""Three brokers and a ZooKeeper, as processes: registration, the controller, sessions that end."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from klog_broker.lifecycle.exit_codes import ExitCode
from pyspark_klog.client.admin.groups import commit_offsets, committed_offsets
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.testing import Broker, KlogCluster
from pyspark_klog.testing.zookeeper import ZooKeeper
from pyspark_klog.znodes.brokers import BrokerRegistration, Endpoint, encode_broker
from pyspark_klog.znodes.cluster import ControllerRegistration, encode_controller
from pyspark_klog.znodes.paths import PRODUCER_ID_BLOCK
from tests.support.client.cases import batch, client_of
from tests.support.eventually import eventually
from tests.support.shared_cluster import (
    agreed_controller,
    described_cluster,
    restart_stopped_brokers,
)
from tests.support.zookeeper.client import ZooKeeperClient

SESSION_MS = 3_000


@pytest.fixture(scope="module")
def shared() -> Iterator[KlogCluster]:
    with KlogCluster(zookeeper_session_timeout_ms=SESSION_MS) as started:
        yield started


@pytest.fixture
def cluster(shared: KlogCluster) -> KlogCluster:
    return restart_stopped_brokers(shared)


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as started:
        yield started


def producer_id(broker: Broker) -> int:
    """Return a producer id that the broker allocates at once; -1 if it has none."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    with BlockingClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        link = client.link_to_any(client.deadline())
        return client.call(link, InitProducerIdResponse, lambda _: request).producer_id


def epoch(cluster: KlogCluster) -> int:
    with ZooKeeperClient(cluster.zookeeper.address) as client:
        return int(client.get("/controller_epoch"))


def test_a_cluster_that_has_started_is_whole(shared: KlogCluster) -> None:
    told = [described_cluster(broker) for broker in shared.brokers]
    assert [brokers for brokers, _ in told] == [[1, 2, 3]] * 3
    assert all(found in (1, 2, 3) for _, found in told)
    assert epoch(shared) == 1
    for number in (0, 4):
        with pytest.raises(ValueError, match=f"no broker {number}; the cluster has 1 to 3"):
            shared.broker(number)
    with pytest.raises(ValueError, match="no broker 1; the cluster has none before its start"):
        KlogCluster().broker(1)


def test_a_killed_controller_is_followed_by_another_in_the_next_epoch(cluster: KlogCluster) -> None:
    first = agreed_controller(cluster)
    before = epoch(cluster)
    cluster.broker(first).kill()
    left = tuple(number for number in (1, 2, 3) if number != first)
    second = agreed_controller(cluster, left)
    assert second != first
    assert epoch(cluster) == before + 1
    # The broker comes back while ZooKeeper may still have its last session: it waits for the end.
    cluster.broker(second).kill()
    cluster.broker(second).start()
    cluster.broker(first).start()
    agreed_controller(cluster)
    assert epoch(cluster) == before + 2


def test_a_controller_that_stood_still_resigns_and_registers_again(cluster: KlogCluster) -> None:
    first = agreed_controller(cluster)
    before = epoch(cluster)
    broker = cluster.broker(first)
    broker_said = len(broker.output())
    broker.pause()
    try:
        left = tuple(number for number in (1, 2, 3) if number != first)
        agreed_controller(cluster, left)
    finally:
        broker.resume()
    assert agreed_controller(cluster) != first
    output = broker.output()[broker_said:]
    assert output.count(f"broker_id={first} registered broker_epoch=") == 1
    assert output.count(f"broker_id={first} has resigned as the controller epoch={before}") == 1
    resigned = output.index("has resigned as the controller")
    assert resigned < output.index(f"broker_id={first} registered broker_epoch=")
    assert epoch(cluster) == before + 1


def test_a_stopped_broker_leaves_the_metadata_at_once(cluster: KlogCluster) -> None:
    first = agreed_controller(cluster)
    for broker in cluster.brokers:
        broker.stop()
    with ZooKeeperClient(cluster.zookeeper.address) as client:
        assert client.children("/brokers/ids") == []
        assert not client.exists("/controller")
    assert first


def test_brokers_outlive_a_zookeeper_that_comes_back(cluster: KlogCluster) -> None:
    """The last test on this cluster, because no one can see when each broker is connected again."""
    first = agreed_controller(cluster)
    before = epoch(cluster)
    registered = "registered broker_epoch="
    registrations = [broker.output().count(registered) for broker in cluster.brokers]
    cluster.zookeeper.stop()
    described_cluster(cluster.broker(first))  # it serves meanwhile
    cluster.zookeeper.start()
    assert agreed_controller(cluster) == first
    assert epoch(cluster) == before
    assert [broker.output().count(registered) for broker in cluster.brokers] == registrations


def test_brokers_stop_in_good_order_without_zookeeper() -> None:
    """The controller cannot write, and sends no response to a broker that is about to stop."""
    with KlogCluster(brokers=2) as cluster:
        cluster.zookeeper.stop()
        for broker in cluster.brokers:
            broker.stop()


def test_a_broker_has_producer_ids_before_anybody_asks() -> None:
    with KlogCluster(brokers=1) as cluster:
        with ZooKeeperClient(cluster.zookeeper.address) as client:
            block = partial(client.get, PRODUCER_ID_BLOCK)
            eventually(lambda: b'"999"' in block(), deadline_s=30, what="a block of ids")
        cluster.zookeeper.stop()
        assert producer_id(cluster.broker(1)) == 0


def test_groups_and_transactions_need_no_third_broker_in_a_test() -> None:
    partition = TopicPartition("t", 0)
    with KlogCluster(2) as cluster, client_of(cluster.bootstrap_servers) as client:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t")])
        commit_offsets(client, "g", {partition: CommittedOffset(1)})
        assert committed_offsets(client, "g")[partition].offset == 1
        producer = TransactionalProducer(client, "x")
        producer.init_transactions()
        producer.begin_transaction()
        producer.add(partition, *batch([b"k"]))
        producer.commit_transaction()


def test_the_command_starts_a_cluster_and_ends_all_of_it() -> None:
    command = [sys.executable, "-m", "pyspark_klog.testing.run_cluster"]
    process = subprocess.Popen(
        [*command, "--brokers", "2", "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        lines: list[str] = []
        while not lines or "Ctrl-C" not in lines[-1]:
            line = process.stdout.readline()
            assert line, lines
            lines.append(line)
        assert lines[0].startswith("ready: 2 brokers, and ZooKeeper at 127.0.0.1:")
        pids = [int(line.split("pid ")[1].split(",")[0]) for line in lines[1:3]]
        assert lines[1].startswith("  broker 1: 127.0.0.1:")
        assert lines[2].startswith("  broker 2: 127.0.0.2:")
        _follow(lines, pids[0])
        for signal_number in (signal.SIGHUP, signal.SIGINT):
            process.send_signal(signal_number)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def _follow(lines: list[str], first_pid: int) -> None:
    """The printed commands work as they are: create a topic, and start a broker again."""
    klog = str(Path(sys.executable).with_name("klog"))
    create, broker = (
        shlex.split(line)[1:] for line in lines if line.startswith(("klog topics", "klog broker"))
    )
    subprocess.run([klog, *create], check=True, timeout=60)
    os.kill(first_pid, signal.SIGTERM)  # unlike a kill it leaves no session to wait for
    with ZooKeeperClient(lines[0].split()[-1]) as client:
        eventually(lambda: client.children("/brokers/ids") == ["2"], deadline_s=60, what="its end")
    back = subprocess.Popen(
        [klog, *broker], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        assert back.stdout.readline().startswith("klog ready on 127.0.0.1:")
    finally:
        back.terminate()
        back.stdout.close()
        assert back.wait(60) == 0


# --- bad input ----------------------------------------------------------------------------------
def refused(data: Path, connect: str, *settings: str) -> tuple[int, str]:
    """The exit code of a broker that does not start, and its sentence."""
    given = [f"zookeeper.connect={connect}", f"zookeeper.session.timeout.ms={SESSION_MS}"]
    arguments = [word for each in (*given, *settings) for word in ("--set", each)]
    ended = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "klog_broker", "--port", "0", "--data", str(data)),
            *arguments,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stdout == ""
    (sentence,) = [line for line in ended.stderr.splitlines() if line.startswith("klog: ")]
    return ended.returncode, sentence


def in_cluster(zookeeper: ZooKeeper, chroot: str, **settings: Any) -> Broker:
    return Broker(
        zookeeper_connect=f"{zookeeper.address}{chroot}",
        zookeeper_session_timeout_ms=SESSION_MS,
        **settings,
    )


def test_no_zookeeper(tmp_path: Path) -> None:
    code, sentence = refused(tmp_path, "127.0.0.1:1", "zookeeper.connection.timeout.ms=500")
    assert code == ExitCode.NO_ZOOKEEPER
    assert sentence == (
        "klog: no ZooKeeper server of zookeeper.connect=127.0.0.1:1 could be reached within 500 ms"
        " (zookeeper.connection.timeout.ms); check that they run and can be reached from here"
    )


def test_a_broker_without_update_metadata_becomes_ready_in_the_end(
    zookeeper: ZooKeeper,
) -> None:
    """ZooKeeper names a controller that does nothing."""
    with ZooKeeperClient(f"{zookeeper.address}/untold") as client:
        nobody = ControllerRegistration(BrokerId(9), 0)
        client.create("/controller", encode_controller(nobody))
        client.create("/controller_epoch", b"1")
    with in_cluster(zookeeper, "/untold") as broker:
        assert "the controller has sent no partition list" in broker.output()


def test_a_number_that_another_broker_has(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    with in_cluster(zookeeper, "/used", broker_id=5) as broker:
        connect = f"{zookeeper.address}/used"
        code, sentence = refused(tmp_path, connect, "broker.id=5")
        address = f"PLAINTEXT://{broker.bootstrap_servers}"
    assert code == ExitCode.REFUSED_BY_CLUSTER
    assert sentence.startswith("klog: broker.id=5 is in use: /brokers/ids/5 belongs to another")
    assert address in sentence


def test_an_address_that_another_broker_has_registered_is_refused(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with ZooKeeperClient(f"{zookeeper.address}/address") as client:
        endpoint = Endpoint("PLAINTEXT", "shared.example.org", 9092, "PLAINTEXT")
        data = encode_broker(BrokerRegistration((endpoint,), 1))
        client.create("/brokers/ids/4", data)
        advertised = "advertised.listeners=PLAINTEXT://shared.example.org:9092"
        connect = f"{zookeeper.address}/address"
        code, sentence = refused(tmp_path, connect, "broker.id=5", advertised)
    assert code == ExitCode.REFUSED_BY_CLUSTER
    assert sentence.startswith(
        "klog: the address PLAINTEXT://shared.example.org:9092 is registered by broker 4 already"
    )


def test_a_cluster_on_its_way_to_kraft(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    with ZooKeeperClient(f"{zookeeper.address}/kraft") as client:
        client.create("/migration", b"{}")
    code, sentence = refused(tmp_path, f"{zookeeper.address}/kraft")
    assert code == ExitCode.REFUSED_BY_CLUSTER
    assert sentence.startswith("klog: the cluster is on its way to KRaft")


def test_data_of_another_cluster(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    with in_cluster(zookeeper, "/one", data=tmp_path) as broker:
        assert "broker_id=1001 generated" in broker.output()
        broker.stop()
        broker.start()
        assert broker.output().count("generated") == 1, "the directory keeps the number"
    code, sentence = refused(tmp_path, f"{zookeeper.address}/other")
    assert code == ExitCode.REFUSED_DIRECTORY
    assert f"the data directory {tmp_path} belongs to cluster " in sentence
    assert (tmp_path / "meta.properties").read_text().splitlines()[1:4] == [
        f"cluster.id={sentence.split('belongs to cluster ')[1].split(',')[0]}",
        "version=0",
        "broker.id=1001",
    ]


def test_data_of_a_standalone_broker(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    with Broker(data=tmp_path):
        pass
    code, sentence = refused(tmp_path, f"{zookeeper.address}/alone")
    assert code == ExitCode.REFUSED_DIRECTORY
    assert sentence.startswith(
        f"klog: the data directory {tmp_path} belongs to a broker that runs alone"
    )
    with ZooKeeperClient(zookeeper.address) as client:
        assert not client.exists("/alone/cluster"), "nothing was begun there"


def test_a_number_that_was_taken_ends_the_broker_that_had_it(zookeeper: ZooKeeper) -> None:
    """The broker was paused, and another process has registered under its id."""
    with (
        in_cluster(zookeeper, "/taken", broker_id=BrokerId(6)) as broker,
        ZooKeeperClient(f"{zookeeper.address}/taken") as client,
    ):
        broker.pause()
        try:
            eventually(lambda: not client.exists("/brokers/ids/6"), deadline_s=60, what="expiry")
            client.create("/brokers/ids/6", b"{}")
        finally:
            broker.resume()
        eventually(lambda: not broker.is_running, deadline_s=60, what="the broker's end")
        assert "the broker stops: broker.id=6 is in use" in broker.output()
        assert f"stopped exit_code={int(ExitCode.REFUSED_BY_CLUSTER)}" in broker.output()
