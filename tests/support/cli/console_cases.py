"""Cases that `klog produce`, `consume` and `perf` must pass with any broker: klog and Kafka."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from klog_broker.cli.common.partitions import named_partitions
from klog_broker.cli.records.record_writer import MANY_ROWS
from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets, committed_offsets
from pyspark_klog.client.admin.records_deletion import delete_records
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.partitioner import partition_for_key
from tests.support.client.cases import batch, client_of, new_topic

MANY = 3 * MANY_ROWS
IDLE = ("--timeout-ms", "1500")


def klog(servers: str, *arguments: str, given: str | bytes = b"") -> Result:
    """A `klog` command on these brokers, with ``given`` on stdin."""
    words = [*arguments, "--bootstrap-server", servers]
    return CliRunner().invoke(command, words, prog_name="klog", input=given)


def produced(servers: str, topic: str, given: str | bytes, *options: str) -> None:
    """Produce the given lines; expect exit code 0 and no output."""
    result = klog(servers, "produce", topic, *options, given=given)
    assert (result.exit_code, result.output) == (0, "")


def consumed(servers: str, topic: str, *options: str, count: int | None = None) -> list[bytes]:
    """Return the lines that `consume` prints: ``count`` lines, or one for each offset."""
    if count is None:
        with client_of(servers) as client:
            partitions = named_partitions(client, [topic])
            ends = list_offsets(client, dict.fromkeys(partitions, LATEST))
            count = sum(end.offset for end in ends.values())
    until = ("--max-messages", str(count)) if count else IDLE
    result = klog(servers, "consume", topic, "--from-beginning", *until, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout_bytes.splitlines()


def as_json(servers: str, topic: str, *options: str) -> list[dict[str, Any]]:
    """The records of a topic, without the fields that differ from run to run."""
    return [json.loads(line) for line in consumed(servers, topic, "--json", *options)]


def lines_are_records(servers: str) -> None:
    """Lines with any line end, or none, empty lines, few and many: by record and by kernels."""
    topic = new_topic(servers, 1)
    produced(servers, topic, b"one\r\n\ntw\xff\nlast")
    assert consumed(servers, topic) == [b"one", b"", b"tw\xff", b"last"]
    topic = new_topic(servers, 3)
    many = [b"%d" % number for number in range(MANY)]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "lines"
        file.write_bytes(b"\n".join(many))
        produced(servers, topic, b"", "--file", str(file), "--compression", "zstd")
    assert sorted(consumed(servers, topic)) == sorted(many)


def keys_headers_and_nulls(servers: str) -> None:
    """`produce` and `consume` treat them as Kafka's console tools do."""
    topic = new_topic(servers, 3)
    given = b"a:1,b:NULL\tk1=v=1\n\tk2=NULL\n\tNULL=v3\n"
    options = ("--headers", "--key-separator", "=", "--null-value", "NULL")
    produced(servers, topic, given, *options)
    fields = ("--print", "key,value,headers,partition", "--separator", "|")
    found = sorted(consumed(servers, topic, *fields))
    of_k1, of_k2, of_null = (line.rsplit(b"|", 1) for line in found)
    assert of_k1 == [b"k1|v=1|a:1,b:null", b"%d" % partition_for_key(b"k1", 3)]
    assert of_k2 == [b"k2|null|", b"%d" % partition_for_key(b"k2", 3)]
    assert of_null[0] == b"null|v3|"
    produced(servers, topic, b"x\ny\n", "--partition", "2", "--acks", "1")
    of_last = [*(line for line in found if line.endswith(b"|2")), b"x", b"y"]
    last = consumed(servers, topic, "--partition", "2", count=len(of_last))
    assert last[-2:] == [b"x", b"y"]


def json_goes_both_ways(servers: str) -> None:
    """A topic is copied as it is, few records and many; bytes that are no text, too."""
    lines = [
        '{"key": "k", "value": "v\\n\\u00e9", "headers": {"h": "x"}, "timestamp": 5}',
        '{"key_base64": "/w==", "value": null, "partition": 1, "timestamp": 1700000000000}',
        '{"value_base64": "AP8=", "headers": [{"key": "n", "value": null},'
        ' {"key": "b", "value_base64": "/w=="}], "partition": 0, "timestamp": 7}',
    ]
    for repeated in (1, MANY_ROWS):
        topic, copy = new_topic(servers, 2), new_topic(servers, 2)
        produced(servers, topic, "\n".join(lines * repeated), "--json")
        found = as_json(servers, topic)
        assert len(found) == 3 * repeated
        some = {each["timestamp"]: each for each in found}
        assert some[5]["value"] == "v\né"
        assert some[5]["headers"] == [{"key": "h", "value": "x"}]
        second = some[1700000000000]
        assert (second["key_base64"], second["value"], second["partition"]) == ("/w==", None, 1)
        assert some[7]["value_base64"] == "AP8="
        assert some[7]["headers"][1] == {"key": "b", "value_base64": "/w=="}
        lines_of = consumed(servers, topic, "--json")
        produced(servers, copy, b"\n".join(lines_of), "--json")
        copied = as_json(servers, copy)
        order = [(each["partition"], each["offset"]) for each in found]
        assert sorted(order) == sorted((each["partition"], each["offset"]) for each in copied)
        assert sorted(json.dumps({**each, "topic": copy}) for each in found) == sorted(
            map(json.dumps, copied)
        )


def a_bad_line_ends_it(servers: str) -> None:
    """The lines before a bad line are written, and the error names the bad line."""
    topic = new_topic(servers, 1)
    for lines in (2, MANY):
        given = b"k=v\n" * lines + b"bad\n" + b"k=w\n" * lines
        result = klog(servers, "produce", topic, "--key-separator", "=", given=given)
        assert result.exit_code == 1
        assert result.stderr == (
            f"klog: line {lines + 1}: the line has no '=' after a key (--key-separator)\n"
            f"klog: {lines} records are written, from lines before the invalid one\n"
        )
    assert consumed(servers, topic) == [b"v"] * (2 + MANY)
    small = ("--producer-property", "max.request.size=1000")
    for lines in (2, MANY):
        given = b"v\n" * lines + b"x" * 1_500 + b"\nv\n"
        result = klog(servers, "produce", topic, *small, given=given)
        assert result.exit_code == 1
        assert f"klog: line {lines + 1}: its record is larger than 1000 bytes" in result.stderr
        given = b'{"value":"a"}\n' * lines + b'{"partition":1,"value":"b"}\n'
        result = klog(servers, "produce", topic, "--json", given=given)
        assert f"klog: line {lines + 1}: there is no partition 1: topic" in result.stderr
    longer = klog(servers, "produce", topic, *small, given=b"a\n" + b"x" * 5_000)
    assert longer.exit_code == 1
    assert "klog: line 2: it is longer than 2000 bytes" in longer.stderr
    assert len(consumed(servers, topic)) == 2 + MANY + 2 * (2 + MANY) + 1


def reading_begins_at_the_given_offset_or_time(servers: str) -> None:
    """Reading begins at an offset or a time; it ends at the log's end or after --max-messages."""
    topic = new_topic(servers, 2)
    lines = [f'{{"value": "{n}", "timestamp": {n * 1000}, "partition": 0}}' for n in range(10)]
    produced(servers, topic, "\n".join(lines), "--json")

    def of(*options: str, count: int | None = None) -> list[bytes]:
        until = IDLE if count is None else ("--max-messages", str(count))
        result = klog(servers, "consume", topic, *until, *options)
        assert result.exit_code == 0, result.output
        return result.stdout_bytes.splitlines()

    assert of("--offset", "7", "--partition", "0", count=3) == [b"7", b"8", b"9"]
    assert of("--offset", "1970-01-01T00:00:07.500", count=2) == [b"8", b"9"]
    assert of("--offset", "2100-01-01") == []
    assert of("--offset", "latest") == of("--partition", "1", "--offset", "earliest") == []
    assert of("--offset", "earliest", count=4) == [b"0", b"1", b"2", b"3"]
    lost = klog(servers, "consume", topic, "--partition", "0", "--offset", "99", *IDLE)
    assert lost.stderr == (
        f"klog: offset 99 of {topic}-0 is out of range: the log has offsets 0 to 10 (end "
        "exclusive); continuing at 10\n"
    )
    with client_of(servers) as client:
        delete_records(client, {TopicPartition(topic, 0): 6})
    gone = klog(
        servers, "consume", topic, "--partition", "0", "--offset", "1", "--max-messages", "4"
    )
    assert gone.stdout_bytes.splitlines() == [b"6", b"7", b"8", b"9"]
    assert "continuing at 6" in gone.stderr


def a_group_goes_on_where_it_was(servers: str) -> None:
    """A group's first position is committed too, although no record was printed then."""
    topic = new_topic(servers, 1)
    group = ("--group", f"group-{topic}")

    def of(*options: str) -> list[bytes]:
        result = klog(servers, "consume", topic, *group, *IDLE, *options)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout_bytes.splitlines()

    produced(servers, topic, b"before\n")
    assert of() == []
    produced(servers, topic, b"1\n2\n3\n")
    assert of("--max-messages", "2") == [b"1", b"2"]
    partition = TopicPartition(topic, 0)
    with client_of(servers) as client:
        assert committed_offsets(client, group[1])[partition].offset == 3
        assert of("--from-beginning") == [b"3"]
        commit_offsets(client, group[1], {partition: CommittedOffset(0)})
    assert of() == [b"before", b"1", b"2", b"3"]


def only_committed_records(servers: str) -> None:
    """Records of aborted transactions are left out, be they few or many."""
    topic = new_topic(servers, 1)
    partition = TopicPartition(topic, 0)
    with client_of(servers) as client:
        producer = TransactionalProducer(client, f"tx-{topic}")
        producer.init_transactions()
        for commits, size in ((False, 20), (True, 20), (False, 20_000)):
            producer.begin_transaction()
            for _ in range(20):
                producer.add(partition, *batch([b"y" if commits else b"n"], size=size))
            producer.flush()
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    level = ("--isolation-level", "read_committed")
    read = klog(servers, "consume", topic, "--from-beginning", *IDLE, *level)
    assert read.stdout_bytes.splitlines() == [b"y" * 20] * 20
    assert len(consumed(servers, topic, count=60)) == 60


def performance_is_reported(servers: str) -> None:
    """All records are written and read, in figures for people and for scripts."""
    topic = new_topic(servers, 2)
    write = ("perf", "produce", "--topic", topic, "--num-records")
    shown = klog(servers, *write, "30001", "--record-size", "100")
    assert shown.exit_code == 0, shown.output
    head, first, *_, last = (line.split() for line in shown.stdout.splitlines())
    assert (head, first) == (["FIGURE", "VALUE"], ["records", "30001"])
    assert last[:2] == ["p99.9", "ms"]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "payloads"
        file.write_text("one\ntwo\n")
        slow = ("--payload-file", str(file), "--throughput", "200", "--json")
        zstd = ("--producer-property", "compression.type=zstd")
        told = json.loads(klog(servers, *write, "50", *slow, *zstd).stdout)
    assert told["records"] == 50
    assert told["seconds"] >= 0.2
    assert 0 < told["p50_ms"] <= told["p99_9_ms"] <= told["max_ms"]
    read = klog(servers, "perf", "consume", "--topic", topic, "--messages", "30051", "--json")
    assert json.loads(read.stdout)["records"] == 30_051
    values = consumed(servers, topic)
    assert sorted(set(map(len, values))) == [3, 100]
    more = ("perf", "consume", "--topic", topic, "--messages", "40000", *IDLE)
    few = klog(servers, *more)
    assert few.exit_code == 1
    assert "klog: only 30051 of 40000 records came: none for 1500 ms" in few.stderr


CASES: list[Callable[[str], None]] = [
    lines_are_records,
    keys_headers_and_nulls,
    json_goes_both_ways,
    a_bad_line_ends_it,
    reading_begins_at_the_given_offset_or_time,
    a_group_goes_on_where_it_was,
    only_committed_records,
    performance_is_reported,
]
