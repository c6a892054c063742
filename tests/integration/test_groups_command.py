"""`klog groups` on a running broker: list, describe, delete, delete-offsets."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets
from pyspark_klog.client.admin.topics import Admin
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from tests.support.broker_thread import BrokerThread
from tests.support.client.cases import batch, client_of, new_topic
from tests.support.client.group_member import joined_member

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
RECORDS = 10


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("groups") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: BrokerThread) -> tuple[str, str]:
    """Two topics of two partitions each, with records in partition 0."""
    names = new_topic(broker.bootstrap_servers, 2), new_topic(broker.bootstrap_servers, 2)
    with client_of(broker.bootstrap_servers) as client:
        producer = Producer(client)
        for name in names:
            producer.add(TopicPartition(name, 0), *batch([b"k"] * RECORDS))
        producer.flush()
    return names


@pytest.fixture
def group(broker: BrokerThread, topics: tuple[str, str], request: pytest.FixtureRequest) -> str:
    """A group that has committed 3 in partition 0 of both topics."""
    name = str(request.node.name)
    offsets = {TopicPartition(topic, 0): CommittedOffset(3, metadata="at 3") for topic in topics}
    with client_of(broker.bootstrap_servers) as client:
        commit_offsets(client, name, offsets)
    return name


def klog(broker: BrokerThread, *arguments: str) -> Result:
    servers = ["--bootstrap-server", broker.bootstrap_servers]
    return CliRunner().invoke(command, ["groups", *arguments, *servers], prog_name="klog")


def listed(broker: BrokerThread) -> set[str]:
    return {each["group"] for each in json.loads(klog(broker, "list", "--json").output)}


def test_groups_are_listed(broker: BrokerThread, group: str) -> None:
    header, *rows = klog(broker, "list").output.splitlines()
    assert header.split() == ["GROUP", "STATE", "TYPE", "MEMBERS", "PROTOCOL", "COORDINATOR"]
    assert [group, "Empty", "classic", "0", "0"] in [row.split() for row in rows]
    (found,) = [
        each for each in json.loads(klog(broker, "list", "--json").output) if each["group"] == group
    ]
    assert found == {
        "group": group,
        "kind": "consumer",
        "type": "classic",
        "state": "Empty",
        "members": 0,
        "protocol": "",
        "coordinator": 0,
    }


def test_groups_are_described_with_their_lag(
    broker: BrokerThread, group: str, topics: tuple[str, str]
) -> None:
    lines = klog(broker, "describe", group).output.splitlines()
    lag = RECORDS - 3
    assert lines[0] == f"group {group}  Empty  members 0  lag {2 * lag}"
    assert [line.split() for line in lines[1:]] == [
        ["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER", "HOST", "CLIENT"],
        *([topic, "0", "3", str(RECORDS), str(lag), "-", "-", "-"] for topic in sorted(topics)),
    ]
    verbose = klog(broker, "describe", group, "--verbose").output.splitlines()
    assert verbose[1].split()[-3:] == ["LEADER", "EPOCH", "METADATA"]
    assert verbose[2].split()[-3:] == ["-", "at", "3"]
    (told,) = json.loads(klog(broker, "describe", group, "--json").output)
    assert (told["group"], told["offsets"][0]) == (
        group,
        {
            "topic": min(topics),
            "partition": 0,
            "offset": 3,
            "end": RECORDS,
            "lag": RECORDS - 3,
            "leader_epoch": -1,
            "metadata": "at 3",
            "member": None,
        },
    )


def test_the_members_of_a_group_and_what_they_read(
    broker: BrokerThread, group: str, topics: tuple[str, str]
) -> None:
    member = joined_member(broker.bootstrap_servers, topics[0], group, client_id="reader")
    (told,) = json.loads(klog(broker, "describe", group, "--json").output)
    (listed,) = told["member_list"]
    assert (told["state"], told["members"], listed["client"]) == ("Stable", 1, "reader")
    assert [each["partition"] for each in listed["partitions"]] == [0, 1]
    rows = [line.split() for line in klog(broker, "describe", group).output.splitlines()[2:]]
    # Partition 1 is read, and has no offset yet; the other topic has one, and nobody reads it.
    who = [listed["member"], listed["host"], "reader"]
    assert [topics[0], "0", "3", "10", "7", *who] in rows
    assert [topics[0], "1", "-", "0", "-", *who] in rows
    assert [topics[1], "0", "3", "10", "7", "-", "-", "-"] in rows
    lines = klog(broker, "describe", group, "--members", "--verbose").output.splitlines()
    assert lines[0] == f"group {group}  Stable  members 1"
    assert lines[2].split() == [
        *(listed["member"], "-", listed["host"], "reader", "2", "-", f"{topics[0]}:0,1")
    ]
    lines = klog(broker, "describe", group, "--state").output.splitlines()
    assert lines[1].split()[0] == group
    assert lines[1].split()[-2:] == ["Stable", "1"]
    assert klog(broker, "describe", group, "--state", "--members").exit_code == 2
    assert [group] == [
        each["group"]
        for each in json.loads(klog(broker, "list", "--state", "stable", "--json").output)
    ]
    result = klog(broker, "reset-offsets", group, "--all-topics", "--to-earliest")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        f"klog: the offsets of group {group} cannot be reset while it has members: its state"
        " is Stable, its member count 1; stop its consumers first"
    )
    member.close()


def test_all_groups_are_described(broker: BrokerThread, group: str) -> None:
    told = json.loads(klog(broker, "describe", "--all-groups", "--json").output)
    assert group in {each["group"] for each in told}
    assert {each["group"] for each in told} == listed(broker)
    assert klog(broker, "describe", "--all-groups", group).exit_code == 2


def test_offsets_of_some_partitions_are_deleted(
    broker: BrokerThread, group: str, topics: tuple[str, str]
) -> None:
    result = klog(broker, "delete-offsets", group, f"{topics[0]}:0")
    assert (result.exit_code, result.output) == (0, f"deleted offsets in {topics[0]}:0\n")
    (told,) = json.loads(klog(broker, "describe", group, "--json").output)
    assert [each["topic"] for each in told["offsets"]] == [topics[1]]
    result = klog(broker, "delete-offsets", group, f"{topics[0]}:7")
    expected = f"klog: {topics[0]} has no partition 7: it has 2, from 0 on\n"
    assert (result.exit_code, result.stderr) == (1, expected)
    assert klog(broker, "delete-offsets", group, f"{topics[0]}:x").exit_code == 2


def test_a_group_that_there_is_not(broker: BrokerThread) -> None:
    result = klog(broker, "describe", "nobody")
    assert (result.exit_code, result.stderr) == (
        1,
        "klog: GROUP_ID_NOT_FOUND: there is no consumer group nobody\n",
    )
    result = klog(broker, "delete", "nobody")
    assert (result.exit_code, result.stdout) == (1, "")
    expected = "klog: GROUP_ID_NOT_FOUND: delete group nobody: there is no such group\n"
    assert result.stderr == expected


def test_groups_are_deleted_and_refused_groups_are_named(
    broker: BrokerThread, group: str, topics: tuple[str, str]
) -> None:
    member = joined_member(broker.bootstrap_servers, topics[0], f"{group}-busy")
    result = klog(broker, "delete", f"{group}-busy", group)
    assert (result.exit_code, result.stdout) == (1, f"deleted {group}\n")
    expected = f"klog: NON_EMPTY_GROUP: delete group {group}-busy: the group has members\n"
    assert result.stderr == expected
    assert listed(broker) & {group, f"{group}-busy"} == {f"{group}-busy"}
    member.close()
    result = klog(broker, "delete", f"{group}-busy", "--json")
    assert (result.exit_code, json.loads(result.output)) == (0, {"deleted": [f"{group}-busy"]})


def test_offsets_are_deleted_in_topics_that_nobody_reads(
    broker: BrokerThread, group: str, topics: tuple[str, str]
) -> None:
    read, other = topics
    member = joined_member(broker.bootstrap_servers, read, group)
    result = klog(broker, "delete-offsets", group, read, other)
    assert (result.exit_code, result.stdout) == (1, f"deleted offsets in {other}\n")
    said = "members of the group are subscribed to the topic"
    expected = f"klog: GROUP_SUBSCRIBED_TO_TOPIC: delete offsets in {read}: {said}\n"
    assert result.stderr == expected
    member.close()
    (told,) = json.loads(klog(broker, "describe", group, "--json").output)
    assert {each["topic"] for each in told["offsets"]} == {read}
    result = klog(broker, "delete-offsets", group, "no-such-topic")
    assert result.stderr == "klog: topic no-such-topic does not exist\n"


def test_offsets_of_a_deleted_topic(broker: BrokerThread, group: str) -> None:
    """A topic's offsets are deleted with the topic."""
    topic = new_topic(broker.bootstrap_servers, 1)
    with client_of(broker.bootstrap_servers) as client, Admin(client=client) as admin:
        commit_offsets(client, group, {TopicPartition(topic, 0): CommittedOffset(0)})
        assert f"{topic} " in klog(broker, "describe", group).output
        admin.delete_topics([topic])
    assert f"{topic} " not in klog(broker, "describe", group).output


@pytest.mark.parametrize("arguments", [["delete"], ["describe"], ["delete-offsets", "g"]])
def test_what_must_be_named(broker: BrokerThread, arguments: list[str]) -> None:
    assert klog(broker, *arguments).exit_code == 2
