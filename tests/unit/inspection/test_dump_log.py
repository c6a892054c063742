"""`klog dump-log`: its reports of damage and of foreign files, and its arguments.

tests/golden/test_dump_log_golden.py compares its lines with those of Kafka's tool.
"""

import json
import shutil
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.state_records.consumer_offsets import encode_offset_key, encode_value
from pyspark_klog.state_records.group_metadata import GroupMetadataValue, MemberMetadata
from pyspark_klog.storage.indexes import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY

GOLDEN = Path(__file__).parents[2] / "golden" / "dump_log"


def klog(*arguments: object) -> Result:
    return CliRunner().invoke(command, ["dump-log", *map(str, arguments)])


def one_log(folder: Path, *batches: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    log = folder / f"{0:020d}.log"
    log.write_bytes(b"".join(batches))
    return log


def batch(
    offset: int, key: bytes | None = b"k", value: bytes | None = b"v", codec: Codec = Codec.NONE
) -> bytes:
    builder = BatchBuilder(offset, codec)
    builder.append(key, value, 1_000 + offset)
    return builder.build()


def errors(result: Result) -> list[str]:
    return [line for line in result.output.splitlines() if line.startswith("error: ")]


# --- damage ---------------------------------------------------------------------------------------
def test_a_wrong_crc_is_said_of_the_batch_and_in_the_exit_code(tmp_path: Path) -> None:
    second = bytearray(batch(1))
    second[-1] ^= 1
    log = one_log(tmp_path, batch(0), bytes(second), batch(2))
    result = klog(log)
    assert [line.rsplit(" ", 1)[1] for line in result.output.splitlines() if "isvalid" in line] == [
        "true",
        "false",
        "true",
    ]
    place = len(batch(0))
    assert errors(result) == [f"error: {log}, byte {place}: the CRC does not fit the batch's bytes"]
    assert result.exit_code == 1


@pytest.mark.parametrize("size", [1, 100, (1 << 20) - 30, (1 << 20) + 1])
def test_what_follows_a_hole_is_found_again(tmp_path: Path, size: int) -> None:
    log = one_log(tmp_path, batch(0), b"\x05" * size, batch(1))
    result = klog(log)
    assert result.output.count("isvalid: true") == 2
    (line,) = errors(result)
    assert f"byte {len(batch(0))}: {size} bytes, up to the next good batch, are not a batch" in line
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "tail, expected",
    [
        (batch(1)[:-1], "are not a whole batch"),
        (b"\0" * 99, "99 bytes of zeros at the end"),
        (b"\x01", "1 bytes at the end are not a whole batch"),
        (struct.pack(">qiib", 1, 2**31 - 1, 0, 2) + b"x" * 90, "of its 2147483659 bytes are left"),
    ],
)
def test_a_torn_end_is_no_damage(tmp_path: Path, tail: bytes, expected: str) -> None:
    result = klog(one_log(tmp_path, batch(0), tail))
    last = result.output.splitlines()[-1]
    assert last.startswith("recoverable: ")
    assert expected in last
    assert result.exit_code == 0


def test_records_that_cannot_be_read_do_not_end_the_dump(tmp_path: Path) -> None:
    bad = bytearray(batch(0, value=b"v" * 100, codec=Codec.GZIP))
    bad[70:80] = bytes(10)
    (view,) = split_batches(bad)
    view.update_crc()
    result = klog("--print-data-log", one_log(tmp_path, bytes(bad), batch(1, value=b"next")))
    assert "a record of the batch cannot be read: gzip" in errors(result)[0]
    assert "payload: next" in result.output
    assert result.exit_code == 1


def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    log = one_log(tmp_path, batch(0, value=bytes(65 << 20), codec=Codec.ZSTD))
    assert log.stat().st_size < 1 << 20
    result = klog("--deep-iteration", log)
    assert "hold more than the limit" in errors(result)[0]


def test_an_unknown_codec_has_a_line(tmp_path: Path) -> None:
    changed = bytearray(batch(0))
    changed[22] |= 7
    (view,) = split_batches(changed)
    view.update_crc()
    result = klog("--deep-iteration", one_log(tmp_path, bytes(changed)))
    assert "compresscodec: unknown(7)" in result.output
    assert "codec 7 is unknown" in errors(result)[0]


def test_index_rows_that_the_log_does_not_bear_out(tmp_path: Path) -> None:
    log = one_log(tmp_path, batch(0), batch(1), batch(2))
    second = len(batch(0))
    index, times = log.with_suffix(".index"), log.with_suffix(".timeindex")
    index.write_bytes(
        OFFSET_INDEX_ENTRY.pack(1, second)
        + OFFSET_INDEX_ENTRY.pack(2, second + 1)
        + OFFSET_INDEX_ENTRY.pack(1, 5_000)
        + b"odd"
    )
    times.write_bytes(TIME_INDEX_ENTRY.pack(1_001, 1) + TIME_INDEX_ENTRY.pack(1_003, 2))
    result = klog(index, times)
    texts = [line.partition(": row ")[2] for line in errors(result)]
    assert texts[:2] == [
        f"1 says offset 2 at {second + 1}: no batch begins there",
        f"2 says offset 1 at 5000: it does not rise above the row before, offset 2 at {second + 1}",
    ]
    assert "3 bytes are left after the last row of 8 bytes" in errors(result)[2]
    assert (
        texts[3] == "1 says timestamp 1003 at offset 2: the batch up to offset 2 has timestamp 1002"
    )
    assert result.exit_code == 1


def test_of_indexes_only_what_is_asked_for(tmp_path: Path) -> None:
    log = one_log(tmp_path, batch(0), batch(1))
    index = log.with_suffix(".index")
    index.write_bytes(OFFSET_INDEX_ENTRY.pack(1, len(batch(0))) + bytes(80))
    assert klog(index).output == f"Dumping {index}\noffset: 1 position: {len(batch(0))}\n"
    assert klog(index, "--verify-index-only").output == f"Dumping {index}\n"
    sane = f"Dumping {index}\n{index} passed sanity check.\n"
    assert klog(index, "--index-sanity-check").output == sane
    index.write_bytes(OFFSET_INDEX_ENTRY.pack(1, 3))
    assert len(errors(klog(index, "--verify-index-only"))) == 1
    assert "passed" not in klog(index, "--index-sanity-check").output
    index.write_bytes(b"")
    assert klog(index).output == f"Dumping {index}\n{index} is empty.\n"


def test_damaged_files_next_to_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "tx-0"
    shutil.copytree(GOLDEN / "tx-0", folder)
    (snapshot,) = folder.glob("*.snapshot")
    (aborted,) = folder.glob("*.txnindex")
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    aborted.write_bytes(b"\x07" + aborted.read_bytes()[1:])
    (folder / "leader-epoch-checkpoint").write_text("0\nmany\n")
    result = klog(folder)
    assert len(errors(result)) == 3
    assert result.exit_code == 1


# --- what is in records ---------------------------------------------------------------------------
def test_a_record_stays_one_line(tmp_path: Path) -> None:
    log = one_log(tmp_path, batch(0, b"a\nb", "\x1b[2J\u2028".encode() + b"\xff"))
    line = klog("--print-data-log", log).output.splitlines()[-1]
    assert line.endswith("key: a\\x0ab payload: \\x1b[2J\\u2028\ufffd")


def test_bytes_for_machines(tmp_path: Path) -> None:
    log = one_log(tmp_path, batch(0, b"k", b"\xff\x00"))
    row = json.loads(klog("--json", "--print-data-log", log).output.splitlines()[-1])
    assert (row["kind"], row["key"], row["valueBase64"]) == ("record", "k", "/wA=")
    assert "value" not in row


def test_without_their_folders_name_records_are_decoded_when_asked(tmp_path: Path) -> None:
    log = shutil.copy(GOLDEN / "__transaction_state-0" / f"{0:020d}.log", tmp_path)
    plain = klog(log, "--print-data-log")
    decoded = klog(log, "--transaction-log-decoder")
    assert '"transactionalId":"tid-1"' not in plain.output
    assert '"transactionalId":"tid-1"' in decoded.output
    log = shutil.copy(GOLDEN / "__consumer_offsets-0" / f"{0:020d}.log", tmp_path)
    assert "payload: <DELETE>" in klog(log, "--offsets-decoder").output


def test_newer_kinds_of_group_records_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    log = one_log(
        folder,
        batch(0, b"\0\3\0\1g", b"\0\0rest"),
        batch(1, b"\0\x17\0\1g", None),
        batch(2, b"\0\x63\0\1g", b"\0\0"),
        batch(3, encode_offset_key("g", "t", 0), b"\0\3too short"),
    )
    result = klog(log)
    assert 'key: {"type":"3","name":"ConsumerGroupMetadata"} payload: {"version":"0"}' in (
        result.output
    )
    assert '{"type":"23","name":"StreamsGroupTopology"} payload: <DELETE>' in result.output
    assert "a key of __consumer_offsets has version 99" in errors(result)[0]
    assert len(errors(result)) == 2


def test_members_that_do_not_speak_the_consumer_protocol(tmp_path: Path) -> None:
    member = MemberMetadata(member_id="m", subscription=b"\xff\xff", assignment=b"")
    value = GroupMetadataValue(protocol_type="consumer", members=[member])
    log = one_log(tmp_path / "__consumer_offsets-3", batch(0, b"\0\2\0\1g", encode_value(value)))
    row = json.loads(klog("--json", log).output.splitlines()[-1])
    (shown,) = row["value"]["data"]["members"]
    assert (shown["subscription"], shown["assignment"]) == ("//8=", "")


# --- how it is called -----------------------------------------------------------------------------
def test_files_by_option_and_as_arguments(tmp_path: Path) -> None:
    log = one_log(tmp_path, batch(0))
    by_option = klog("--files", f"{log},{log}")
    assert by_option.output == klog(log, log).output
    assert by_option.output.count("Dumping") == 2


def test_checkpoints_of_a_data_directory(tmp_path: Path) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nflights 3 77\n")
    (tmp_path / "meta.properties").write_text(
        "version=1\ncluster.id=abc\nnode.id=4\ndirectory.id=kL8p2T8sQsGUmSWyWPmZyQ\n"
    )
    result = klog(tmp_path)
    assert "topic: flights partition: 3 offset: 77" in result.output
    assert "clusterId: abc brokerId: 4 directoryId: kL8p2T8sQsGUmSWyWPmZyQ" in result.output


def test_a_file_that_is_none_of_a_logs(tmp_path: Path) -> None:
    stranger = tmp_path / "notes.txt"
    stranger.write_text("hello")
    result = klog(stranger)
    assert "note: " in result.output
    assert "hello" not in result.output
    assert result.exit_code == 0


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ([], "no PATH"),
        (["--files", ","], "no PATH"),
        (["x", "--offsets-decoder", "--transaction-log-decoder"], "expected one"),
        (["no-such.log"], "cannot read no-such.log: No such file or directory"),
        (["--value-decoder-class", "x"], "No such option"),
    ],
)
def test_usage(arguments: list[str], expected: str) -> None:
    result = klog(*arguments)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_a_missing_path_does_not_hide_the_other_files(tmp_path: Path) -> None:
    log, missing = one_log(tmp_path, batch(0)), tmp_path / "missing"
    result = klog(missing, log)
    assert (result.exit_code, result.stdout) == (2, klog(log).stdout)
    assert result.stderr == f"klog: cannot read {missing}: No such file or directory\n"
