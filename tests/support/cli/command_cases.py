"""Cases that `klog`'s commands must pass with any broker: run on klog and on Apache Kafka."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import TopicPartition
from tests.support.client.cases import batch, client_of, new_topic
from tests.support.eventually import eventually

RECORDS = 10


def klog(servers: str, *arguments: str) -> Result:
    """Run a `klog` command on these brokers."""
    words = [*arguments, "--bootstrap-server", servers]
    return CliRunner().invoke(command, words, prog_name="klog")


def json_output(servers: str, *arguments: str) -> Any:
    """Run a command with --json, expect success, and return the decoded output."""
    result = klog(servers, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def rows(servers: str, *arguments: str) -> list[list[str]]:
    """The lines of the tables that a command prints, as words, without heads."""
    result = klog(servers, *arguments)
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()[1:] if line]


def written(servers: str, partitions: int = 1, **configs: str) -> str:
    """A topic with records in each partition."""
    topic = new_topic(servers, partitions, **configs)
    with client_of(servers) as client:
        producer = Producer(client)
        for number in range(partitions):
            producer.add(TopicPartition(topic, number), *batch([b"k"] * RECORDS))
        producer.flush()
    return topic


def topics_are_grown_and_described(servers: str) -> None:
    """More partitions; fewer, or as many, are refused."""
    topic = new_topic(servers, 1)
    done = klog(servers, "topics", "alter", topic, "--partitions", "3")
    assert done.output == f"altered {topic}: 3 partitions\n"
    refused = klog(servers, "topics", "alter", topic, "--partitions", "3")
    assert (refused.exit_code, refused.stderr[:26]) == (1, "klog: INVALID_PARTITIONS: ")
    for option in ("--unavailable-partitions", "--under-replicated-partitions"):
        assert json_output(servers, "topics", "describe", topic, option) == []
    assert klog(servers, "topics", "create", topic, "--if-not-exists").output == ""
    assert klog(servers, "topics", "delete", "no-such", "--if-exists").output == ""


def one_missing_name_does_not_hide_the_others(servers: str) -> None:
    """A command that takes several names goes on after a name that fails: stdout has the results of
    the others, stderr the error, and the exit code is 1."""
    first, second = new_topic(servers, 1), f"second-{new_topic(servers, 1)}"
    broker = ("configs", "describe", "--timeout", "300", "--broker")
    with client_of(servers) as client:
        TransactionalProducer(client, f"tx-{first}").init_transactions()
        commit_offsets(client, f"group-{first}", {TopicPartition(first, 0): CommittedOffset(0)})

    def check(shown: str, missing: str, *arguments: str) -> None:
        result = klog(servers, *arguments)
        assert (result.exit_code, shown in result.stdout) == (1, True), result.output
        assert missing in result.stderr and missing not in result.stdout

    check(f"can be created {second}\n", first, "topics", "create", first, second, "--validate-only")
    check(f"created {second}: 1 partitions\n", first, "topics", "create", first, second)
    check(f"topic {first}  id", "no-such", "topics", "describe", "no-such", first)
    alter = ("topics", "alter", "--partitions", "2")
    check(f"altered {first}: 2 partitions\n", "no-such", *alter, "no-such", first)
    configs = ("configs", "describe", "--topic", "no-such", "--topic", first)
    check(f"topic {first}\n", "no-such", *configs)
    check("broker 0\n", "broker 77", *broker, "77", "--broker", "0")
    check(f"group group-{first}", "no-such", "groups", "describe", "no-such", f"group-{first}")
    offsets = ("groups", "delete-offsets", f"group-{first}", "no-such", first)
    check(f"deleted offsets in {first}\n", "no-such", *offsets)
    check(f"tx-{first}", "no-such", "transactions", "describe", "no-such", f"tx-{first}")
    check("OPEN SINCE", "no-such", "transactions", "describe-producers", "no-such", first)
    check("FREE BYTES", "broker 77", "log-dirs", "--broker", "77", "--broker", "0")
    check("FREE BYTES", "broker 77", "brokers", "describe", "77", "0")
    check("not needed", "no-such", "leaders", "elect", "no-such", first)
    check(f"deleted {first}\n", "no-such", "topics", "delete", "no-such", first)
    result = klog(servers, "topics", "describe", "no-such", second, "--json")
    assert (result.exit_code, [each["name"] for each in json.loads(result.stdout)]) == (1, [second])


def brokers_are_listed_and_described(servers: str) -> None:
    """Addresses, replicas, directories, features, and the highest versions of APIs."""
    topic = written(servers, 2)
    (listed,) = json_output(servers, "brokers", "list")
    assert (listed["broker"], f"{listed['host']}:{listed['port']}") == (0, servers)
    assert rows(servers, "brokers", "list")[0][:3] == ["0", servers, "-"]
    (found,) = json_output(servers, "brokers", "describe", "0")
    assert listed.items() <= found.items()
    described = json_output(servers, "topics", "describe")
    count = sum(len(each["partitions"]) for each in described)
    assert (found["leaders"], found["replicas"], found["out_of_sync"]) == (count, count, 0)
    (log_dir,) = json_output(servers, "log-dirs")
    (directory,) = found["directories"]
    assert (directory["directory"], directory["error"]) == (log_dir["directory"], None)
    assert (directory["replicas"], directory["bytes"]) == (count, log_dir["bytes"])
    assert topic in {each["topic"] for each in log_dir["replicas"]}
    apis = {each["name"]: each for each in found["apis"]}
    assert (apis["ElectLeaders"]["key"], apis["ElectLeaders"]["max_version"]) == (43, 2)
    shown = rows(servers, "brokers", "describe")
    assert shown[0][-3:] == [str(count), str(count), "0"]
    for name, level in found["features"].items():
        assert [name, str(level)] in shown
    assert ["ElectLeaders", "2"] in shown


def leaders_are_elected(servers: str) -> None:
    """An election says for each partition that the leader is the right one already; a partition
    that does not exist is an error."""
    topic = new_topic(servers, 3)
    elect = ("leaders", "elect")
    assert rows(servers, *elect, f"{topic}:2,0") == [[topic, n, "not", "needed"] for n in "02"]
    assert rows(servers, *elect, topic, "--unclean") == [[topic, n, "not", "needed"] for n in "012"]
    result = {"topic": topic, "partition": 1, "result": "not needed"}
    assert json_output(servers, *elect, f"{topic}:1") == [result]
    assert result in json_output(servers, *elect, "--all")
    missing = klog(servers, *elect, f"{topic}:3")
    expected = f"klog: {topic} has no partition 3: it has 3, from 0 on\n"
    assert (missing.exit_code, missing.stdout, missing.stderr) == (1, "", expected)


def settings_of_topics_are_changed(servers: str) -> None:
    """Set, appended to, subtracted from, deleted; shown with where they come from."""
    topic = new_topic(servers, 1)
    of = ("--topic", topic)

    def configs(*options: str) -> dict[str, tuple[str, str]]:
        (found,) = json_output(servers, "configs", "describe", *of, *options)
        assert (found["type"], found["name"]) == ("topic", topic)
        return {each["name"]: (each["value"], each["source"]) for each in found["configs"]}

    own = "dynamic topic config"

    def become(wanted: dict[str, tuple[str, str]]) -> None:
        """Brokers of Kafka hear of what the controller has taken a moment later."""
        eventually(lambda: configs() == wanted)

    become({"retention.ms": ("-1", own)})
    assert configs("--all")["max.message.bytes"][1] == "default config"
    tried = ("configs", "alter", *of, "--set", "segment.ms=70000", "--validate-only")
    assert klog(servers, *tried).output == f"can be altered topic {topic}\n"
    assert configs() == {"retention.ms": ("-1", own)}
    more = ("--set", "segment.ms=60000", "--append", "cleanup.policy=compact")
    assert klog(servers, "configs", "alter", *of, *more).output == f"altered topic {topic}\n"
    both = ("delete,compact", own)
    become({"cleanup.policy": both, "retention.ms": ("-1", own), "segment.ms": ("60000", own)})
    less = ("--subtract", "cleanup.policy=delete", "--delete", "segment.ms")
    assert json_output(servers, "configs", "alter", *of, *less) == {"altered": [f"topic {topic}"]}
    become({"cleanup.policy": ("compact", own), "retention.ms": ("-1", own)})
    assert ["cleanup.policy", "compact", *own.split()] in rows(servers, "configs", "describe", *of)
    (shown,) = json_output(servers, "configs", "describe", *of, "--all")
    (policy,) = [each for each in shown["configs"] if each["name"] == "cleanup.policy"]
    assert [(each["name"], each["source"]) for each in policy["synonyms"]] == [
        ("cleanup.policy", own),
        ("log.cleanup.policy", "default config"),
    ]
    refused = klog(servers, "configs", "alter", *of, "--set", "retention.ms=soon")
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"klog: INVALID_CONFIG: alter the settings of topic {topic}: ")
    more = ("--topic", "no-such", "--set", "segment.ms=70000")
    some = klog(servers, "configs", "alter", *more, *of)
    assert (some.exit_code, some.stdout) == (1, f"altered topic {topic}\n")
    assert "UNKNOWN_TOPIC_OR_PARTITION: alter the settings of topic no-such" in some.stderr


def settings_of_brokers_are_shown(servers: str) -> None:
    """`configs describe --broker ID --all` shows a broker's settings; an absent broker fails."""
    (found,) = json_output(servers, "configs", "describe", "--broker", "0", "--all")
    values = {each["name"]: each for each in found["configs"]}
    assert values["log.retention.hours"]["value"] == "-1"
    assert values["log.retention.hours"]["source"] == "static broker config"
    assert values["log.retention.hours"]["read_only"]
    missing = klog(servers, "configs", "describe", "--broker", "77", "--timeout", "300")
    assert missing.exit_code == 1
    assert "broker 77 is not in the cluster's metadata now" in missing.stderr


def settings_of_brokers_are_changed(servers: str) -> None:
    """Settings of one broker and the defaults of all brokers change while the brokers run."""

    def shown(of: list[str], name: str) -> list[tuple[str, str]]:
        (found,) = json_output(servers, "configs", "describe", *of)
        return [
            (each["value"], each["source"]) for each in found["configs"] if each["name"] == name
        ]

    for of, name, source in (
        (["--broker", "0"], "message.max.bytes", "dynamic broker config"),
        (["--default-broker"], "log.cleaner.backoff.ms", "dynamic default broker config"),
    ):
        altered = klog(servers, "configs", "alter", *of, "--set", f"{name}=20000")
        assert altered.exit_code == 0, altered.stderr
        eventually(lambda a=(of, name), b=source: shown(*a) == [("20000", b)])
        assert klog(servers, "configs", "alter", *of, "--delete", name).exit_code == 0
        eventually(lambda a=(of, name): shown(*a) == [])
    refused = klog(servers, "configs", "alter", "--broker", "0", "--set", "broker.id=7")
    assert refused.exit_code == 1
    assert "alter the settings of broker 0" in refused.stderr


def quotas_are_changed(servers: str) -> None:
    """Quotas of users, client ids, users with client ids, and addresses; and their defaults."""

    def quotas(*of: str) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        found = json_output(servers, "configs", "describe", *of)
        return [(each["entity"], each["quotas"]) for each in found]

    alter = ("configs", "alter")
    rate = ("--set", "producer_byte_rate=1024", "--set", "request_percentage=12.5")
    done = klog(servers, *alter, "--user", "alice", *rate)
    assert done.stdout == "altered user alice\n"
    values = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    eventually(lambda: quotas("--user", "alice") == [({"user": "alice"}, values)])
    # The quota of all clients is high, because the cases after this one consume records, too.
    more = ("--default-client-id", "--set", f"consumer_byte_rate={1 << 30}")
    assert klog(servers, *alter, "--user", "alice", *more).exit_code == 0
    assert klog(servers, *alter, *more).exit_code == 0
    address = ("--ip", "127.0.0.9", "--set", "connection_creation_rate=5")
    assert klog(servers, *alter, *address).exit_code == 0
    both = {"client-id": None, "user": "alice"}
    eventually(lambda: len(quotas("--quotas")) == 4)
    assert quotas("--user", "alice") == [({"user": "alice"}, values)]
    alone = {"consumer_byte_rate": float(1 << 30)}
    assert quotas("--user", "alice", "--default-client-id") == [(both, alone)]
    shown = klog(servers, "configs", "describe", "--quotas").stdout.splitlines()
    assert ["ip", "127.0.0.9", "connection_creation_rate", "5"] in [each.split() for each in shown]
    assert ["user", "alice", "request_percentage", "12.5"] in [each.split() for each in shown]
    tried = klog(servers, *alter, *address[:2], "--delete", "connection_creation_rate")
    assert tried.stdout == "altered ip 127.0.0.9\n"
    eventually(lambda: quotas("--ip", "127.0.0.9") == [])
    refused = klog(servers, *alter, "--user", "alice", "--set", "no_such_quota=1")
    assert (refused.exit_code, "alter quotas: " in refused.stderr) == (1, True)
    named = ("--delete", "producer_byte_rate", "--delete", "request_percentage")
    assert klog(servers, *alter, "--user", "alice", *named, "--validate-only").exit_code == 0
    assert len(quotas("--user", "alice")) == 1


def records_are_deleted(servers: str) -> None:
    """Records before an offset, all records, or those in a file; an offset behind the end fails."""
    topic = written(servers, 2)
    delete = ("records", "delete")
    at = ("--topic", topic, "--partition", "0", "--before-offset")
    assert rows(servers, *delete, *at, "4") == [[topic, "0", "4"]]
    refused = klog(servers, *delete, *at, "99")
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"klog: OFFSET_OUT_OF_RANGE: delete records: {topic}-0: the offset is outside the "
        "partition's log\n",
    )
    offsets = [
        {"topic": topic, "partition": 0, "offset": 6},
        {"topic": topic, "partition": 1, "offset": -1},
    ]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "offsets.json"
        file.write_text(json.dumps({"partitions": offsets, "version": 1}))
        done = json_output(servers, *delete, "--offset-json-file", str(file))
    assert done == [
        {"topic": topic, "partition": 0, "low_watermark": 6},
        {"topic": topic, "partition": 1, "low_watermark": RECORDS},
    ]
    missing = klog(servers, *delete, "--topic", "no-such", *at[2:], "0")
    assert (missing.exit_code, missing.stderr) == (1, "klog: no-such-0 does not exist\n")


def log_directories_are_shown(servers: str) -> None:
    """Sizes by partition and by topic, and totals."""
    topic = written(servers, 2)
    (found,) = json_output(servers, "log-dirs", "--topic", topic)
    assert (found["broker"], found["error"]) == (0, None)
    assert found["disk_bytes"] > found["free_bytes"] > 0
    sizes = {each["partition"]: each["bytes"] for each in found["replicas"]}
    assert sorted(sizes) == [0, 1]
    assert all(size > 0 for size in sizes.values())
    assert found["bytes"] == sum(sizes.values())
    assert {(each["lag"], each["moving"]) for each in found["replicas"]} == {(0, False)}
    shown = rows(servers, "log-dirs", "--topic", topic)
    assert shown[0] == ["0", found["directory"], topic, "0", str(sizes[0]), "0"]
    assert shown[3][:4] == ["0", found["directory"], "2", str(found["bytes"])]
    summed = rows(servers, "log-dirs", "--topic", topic, "--by-topic", "--broker", "0")
    assert summed[0] == ["0", found["directory"], topic, "2", str(found["bytes"])]
    missing = klog(servers, "log-dirs", "--broker", "77")
    assert missing.exit_code == 1
    assert missing.stderr == (
        "klog: BROKER_ID_NOT_REGISTERED: there is no broker 77; there are: 0\n"
    )


def transactions_are_described_and_aborted(servers: str) -> None:
    """An open transaction is listed, described, and aborted by its transactional id."""
    topic = new_topic(servers, 1)
    name = f"tx-{topic}"
    with client_of(servers) as client:
        producer = TransactionalProducer(client, name)
        producer.init_transactions()
        producer.begin_transaction()
        producer.add(TopicPartition(topic, 0), *batch([b"k"]))
        producer.flush()
        identity = producer.identity
        ongoing = json_output(servers, "transactions", "list", "--state", "Ongoing")
        (listed,) = [each for each in ongoing if each["transactional_id"] == name]
        assert (listed["producer_id"], listed["state"]) == (identity.producer_id, "Ongoing")
        assert name in str(rows(servers, "transactions", "list"))
        by_id = ("--producer-id", str(identity.producer_id))
        assert json_output(servers, "transactions", "list", *by_id) == [listed]
        long = ("--longer-than", "86400000")
        assert json_output(servers, "transactions", "list", *by_id, *long) == []
        unknown = klog(servers, "transactions", "list", "--state", "Sleeping")
        assert (unknown.exit_code, "knows no state Sleeping" in unknown.stderr) == (1, True)
        (described,) = json_output(servers, "transactions", "describe", name)
        assert described["state"] == "Ongoing"
        assert described["producer_epoch"] == identity.producer_epoch
        assert described["partitions"] == [{"topic": topic, "partition": 0}]
        (row,) = rows(servers, "transactions", "describe", name)
        assert row[-1] == f"{topic}-0"
        (active,) = json_output(servers, "transactions", "describe-producers", topic)
        assert (active["producer_id"], active["start_offset"]) == (identity.producer_id, 0)
        assert rows(servers, "transactions", "describe-producers", f"{topic}:0")[0][-1] == "0"
        everything = ("--max-transaction-timeout", "0")
        assert json_output(servers, "transactions", "find-hanging", topic, *everything) == []
        aborted = klog(servers, "transactions", "abort", name)
        assert aborted.output == f"aborted {name}\n"
        (active,) = json_output(servers, "transactions", "describe-producers", topic)
        assert active["start_offset"] == -1
    refused = klog(servers, "transactions", "abort", "nobodys")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("klog: TRANSACTIONAL_ID_NOT_FOUND: state of transactional id")


def a_hanging_transaction_is_found_and_aborted(servers: str, topic: str, offset: int) -> None:
    """A transaction that no coordinator knows is open in partition 0 since ``offset``."""
    everything = ("transactions", "find-hanging", "--max-transaction-timeout", "0")
    (found,) = json_output(servers, *everything)
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 0, offset)
    assert json_output(servers, *everything, topic, "--broker", "0") == [found]
    assert json_output(servers, *everything, "--broker", "77") == []
    assert rows(servers, *everything)[0][:3] == [topic, "0", str(offset)]
    # The transaction has been open since 1970, but this maximum is even longer.
    older = ("--max-transaction-timeout", "99999999")
    assert json_output(servers, "transactions", "find-hanging", *older) == []
    at = ("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset")
    wrong = klog(servers, *at, str(offset + 1))
    assert (wrong.exit_code, wrong.stderr) == (
        1,
        f"klog: no open transaction of {topic}-0 begins at {offset + 1}; open ones begin at: "
        f"{offset}\n",
    )
    done = klog(servers, *at, str(offset))
    assert done.output == f"aborted {topic}-0 of producer {found['producer_id']}\n"
    assert json_output(servers, *everything) == []


CASES: tuple[Callable[[str], None], ...] = (
    topics_are_grown_and_described,
    one_missing_name_does_not_hide_the_others,
    brokers_are_listed_and_described,
    leaders_are_elected,
    settings_of_topics_are_changed,
    settings_of_brokers_are_shown,
    settings_of_brokers_are_changed,
    quotas_are_changed,
    records_are_deleted,
    log_directories_are_shown,
    transactions_are_described_and_aborted,
)
