"""`klog verify`, by its output and exit code: its report for each kind of damage."""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from klog_broker.inspection import producer_checks
from klog_broker.log.directory.sync_notes import SyncNotes
from klog_broker.log.log_config import LogConfig
from klog_broker.runtime.disk.files import RealFiles
from klog_broker.runtime.disk.lock_probe import lock_holder
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.layout import BATCH_HEADER_BYTES
from pyspark_klog.storage.indexes import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from pyspark_klog.storage.producer_snapshot import (
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from pyspark_klog.storage.transaction_index import (
    decode_transaction_index,
    encode_transaction_index,
)
from tests.support.log.harness import PARTITION, TOPIC_ID, append_in, batch, open_manager

GOLDEN = Path(__file__).parents[2] / "golden" / "dump_log"
CONFIG = LogConfig(segment_bytes=2_000, segment_index_bytes=1_024, index_interval_bytes=300)
MARKER = ".kafka_cleanshutdown"


def klog(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(each) for each in arguments])


def verify(path: Path, *options: str) -> tuple[int, list[str]]:
    """Return the exit code, and the lines without the folder's name."""
    result = klog("verify", path, *options)
    return result.exit_code, result.output.replace(f"{path}/", "").splitlines()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory of a closed broker: a log of 30 batches in several segments."""
    manager = open_manager(RealFiles(), config=CONFIG, directory=tmp_path)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    for number in range(30):
        made = batch(
            2,
            value=b"v" * 90,
            codec=Codec(number % 5),
            timestamp_ms=1_000 + number * 10,
            producer_id=7,
            base_sequence=number * 2,
        )
        append_in(log, number // 20, made, now_ms=2_000)
    manager.close()
    return tmp_path


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    """A folder that Kafka 4.3.1 wrote: commits, aborts, and one open transaction."""
    folder = tmp_path / "tx-0"
    shutil.copytree(GOLDEN / "tx-0", folder)
    (folder / "kafka-dump-log.txt").unlink()
    return folder


def logs(data: Path) -> list[Path]:
    return sorted((data / "topic-0").glob("*.log"))


def flip(path: Path, place: int, bits: int = 0xFF) -> None:
    changed = bytearray(path.read_bytes())
    changed[place] ^= bits
    path.write_bytes(changed)


def places(log: Path) -> list[tuple[int, int]]:
    """Position and base offset of each batch."""
    return [(each.position, each.base_offset) for each in split_batches(log.read_bytes())]


# --- what is sound --------------------------------------------------------------------------------
def test_a_sound_directory(data: Path) -> None:
    size = sum(log.stat().st_size for log in logs(data))
    expected = (
        f"sound: 1 partitions, {len(logs(data))} segments, 30 batches, 60 records, {size} bytes; "
        f"0 recoverable, 0 notes"
    )
    assert len(logs(data)) > 2
    assert verify(data) == (0, [expected])


def test_the_folder_of_one_partition(data: Path, transactions: Path) -> None:
    assert verify(data / "topic-0")[0] == 0
    code, lines = verify(transactions)
    assert (code, len(lines)) == (0, 1)


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_what_kafka_wrote_is_sound(name: str) -> None:
    code, lines = verify(GOLDEN / name)
    assert code == 0
    assert not [line for line in lines if line.startswith("error")]


def test_machines_get_an_object_a_line(data: Path) -> None:
    flip(logs(data)[0], 100)
    result = klog("verify", data, "--json")
    *findings, summary = [json.loads(line) for line in result.output.splitlines()]
    assert {finding["kind"] for finding in findings} == {"finding"}
    first = findings[0]
    assert (first["level"], first["file"], first["position"]) == ("error", str(logs(data)[0]), 0)
    assert summary["kind"] == "summary"
    assert (summary["sound"], summary["errors"]) == (False, len(findings))
    assert (result.exit_code, summary["partitions"]) == (1, 1)


# --- batches --------------------------------------------------------------------------------------
def test_damage_inside_is_reported_with_its_end(data: Path) -> None:
    log = logs(data)[0]
    second, third = places(log)[1][0], places(log)[2][0]
    flip(log, second + 70)
    code, lines = verify(data)
    assert code == 1
    assert lines[0] == (
        f"error: topic-0/{log.name}, byte {second}: {third - second} bytes, up to the next good "
        f"batch, are not a batch: the batch: the CRC does not fit the bytes"
    )


def test_a_length_that_lies_does_not_hide_what_is_behind_it(data: Path) -> None:
    log = logs(data)[0]
    second, third = places(log)[1][0], places(log)[2][0]
    changed = bytearray(log.read_bytes())
    struct.pack_into(">i", changed, second + 8, 2**31 - 1)
    log.write_bytes(changed)
    code, lines = verify(data)
    assert code == 1
    assert f"byte {second}: {third - second} bytes, up to the next good batch" in lines[0]
    assert f"{len(places_behind(log, third)) + 1 + others(data, log)} batches" in lines[-1]


def places_behind(log: Path, position: int) -> list[int]:
    return [each.position for each in split_batches(log.read_bytes(), position)]


def others(data: Path, but: Path) -> int:
    return sum(len(places(log)) for log in logs(data) if log != but)


def test_records_that_do_not_fit_their_header(data: Path) -> None:
    log = logs(data)[0]
    changed = bytearray(log.read_bytes())
    view = next(each for each in split_batches(changed) if each.codec is Codec.NONE)
    place = view.position
    # The second record's attributes 0, timestamp delta 1, offset delta 1, as varints.
    deltas_at = changed.index(b"\x00\x02\x02", place + BATCH_HEADER_BYTES)
    changed[deltas_at + 2] = 0
    view.update_crc()
    log.write_bytes(changed)
    code, lines = verify(data)
    assert code == 1
    assert lines[0].startswith(f"error: topic-0/{log.name}, byte {place}: record 1 of the batch: ")
    assert "do not rise" in lines[0]


def test_a_count_that_lies_in_a_compressed_batch(data: Path) -> None:
    log = logs(data)[0]
    changed = bytearray(log.read_bytes())
    view = next(each for each in split_batches(changed) if each.codec is Codec.GZIP)
    struct.pack_into(">i", changed, view.position + 57, 1)
    view.update_crc()
    log.write_bytes(changed)
    code, lines = verify(data)
    assert code == 1
    assert "bytes are left behind the last record" in lines[0]


def test_offsets_that_overlap(data: Path) -> None:
    log = logs(data)[0]
    changed = bytearray(log.read_bytes())
    view = list(split_batches(changed))[2]
    view.set_base_offset(view.base_offset - 1)
    log.write_bytes(changed)
    code, lines = verify(data)
    assert code == 1
    assert "the batch has offsets 3 to 4: expected offsets from 4 to" in lines[0]


def test_a_batch_that_is_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "big-0"
    folder.mkdir()
    builder = BatchBuilder(0)
    builder.append(None, bytes(65 << 20), 1_000)
    log = folder / f"{0:020d}.log"
    log.write_bytes(builder.build())
    code, lines = verify(folder)
    assert code == 0
    assert "its records are not checked" in "".join(lines)
    flip(log, 50 << 20)
    assert verify(folder)[0] == 0, "a torn end: nothing follows"
    with log.open("ab") as file:
        file.write(batch_at(1))
    code, lines = verify(folder)
    assert code == 1
    assert "a wrong CRC" in "".join(lines)


def batch_at(offset: int) -> bytes:
    builder = BatchBuilder(offset)
    builder.append(b"k", b"v", 2_000)
    return builder.build()


# --- the end of a log -----------------------------------------------------------------------------
def test_a_torn_end_after_a_crash_is_recoverable(data: Path) -> None:
    log = logs(data)[-1]
    (data / MARKER).unlink()
    recover_from(data, 0)
    with log.open("ab") as file:
        file.write(batch_at(60)[:-3])
    code, lines = verify(data)
    assert code == 0
    assert lines[0].startswith(f"recoverable: topic-0/{log.name}, byte ")
    assert "a broker cuts them off when it starts" in lines[0]
    assert lines[-1].startswith("sound: ")


def test_zeros_at_the_end_after_a_crash_are_recoverable(data: Path) -> None:
    (data / MARKER).unlink()
    with logs(data)[-1].open("ab") as file:
        file.write(bytes(5_000))
    code, lines = verify(data)
    assert code == 0
    assert "5000 bytes of zeros at the end" in lines[0]


def test_the_same_end_is_damage_where_a_broker_had_closed_the_log(data: Path) -> None:
    log = logs(data)[-1]
    log.write_bytes(log.read_bytes()[:-3])
    code, lines = verify(data)
    assert code == 1
    assert any(line.startswith(f"error: topic-0/{log.name}, byte ") for line in lines)
    assert any("below its recovery point 60" in line for line in lines)
    # So it is when it is looked at alone: the directory around it says so.
    assert verify(data / "topic-0")[0] == 1


def test_what_was_synced_and_is_gone_is_damage_after_a_crash_too(data: Path) -> None:
    log = logs(data)[-1]
    (data / MARKER).unlink()
    log.write_bytes(log.read_bytes()[:-3])
    code, lines = verify(data)
    assert code == 1
    assert "error: topic-0: the log ends at offset" in "\n".join(lines)
    assert lines[0].startswith(f"error: topic-0/{log.name}, byte ")


def test_bytes_behind_what_a_broker_had_closed_are_damage(data: Path) -> None:
    log = logs(data)[-1]
    with log.open("ab") as file:
        file.write(batch_at(60)[:-3])
    code, lines = verify(data)
    assert code == 1
    assert lines[0].startswith(f"error: topic-0/{log.name}, byte ")


def test_what_only_looks_like_a_batch_does_not_make_a_hole_of_a_torn_end(data: Path) -> None:
    (data / MARKER).unlink()
    false = bytearray(batch_at(61))
    false[-1] ^= 1
    with logs(data)[-1].open("ab") as file:
        file.write(batch_at(60)[:-3] + false)
    code, lines = verify(data)
    assert code == 0
    assert lines[0].startswith("recoverable: ")


def recover_from(data: Path, offset: int) -> None:
    (data / "recovery-point-offset-checkpoint").write_text(f"0\n1\ntopic 0 {offset}\n")


def test_checkpoints_behind_the_logs_end(data: Path) -> None:
    (data / "replication-offset-checkpoint").write_text("0\n1\ntopic 0 61\n")
    (data / "log-start-offset-checkpoint").write_text("0\n1\ntopic 0 62\n")
    code, lines = verify(data)
    assert code == 1
    assert lines[:2] == [
        "error: topic-0: the log ends at offset 60, below its high watermark 61",
        "error: topic-0: the log ends at offset 60, below its start offset 62",
    ]


# --- indexes --------------------------------------------------------------------------------------
def first_with(data: Path, suffix: str, row_bytes: int, rows: int = 2) -> Path:
    return next(
        path
        for path in sorted((data / "topic-0").glob(f"*{suffix}"))
        if path.stat().st_size >= rows * row_bytes
    )


@pytest.mark.parametrize("by", [-1, 1])
def test_an_index_row_that_leads_nowhere(data: Path, by: int) -> None:
    index = first_with(data, ".index", OFFSET_INDEX_ENTRY.size)
    offset, position = OFFSET_INDEX_ENTRY.unpack_from(index.read_bytes())
    rows = OFFSET_INDEX_ENTRY.pack(offset, position + by) + index.read_bytes()[8:]
    index.write_bytes(rows)
    code, lines = verify(data)
    assert code == 1
    base = int(index.stem)
    assert lines[0] == (
        f"error: topic-0/{index.name}, byte 0: row 0 names offset {base + offset}: no batch begins "
        f"at byte {position + by}"
    )


def test_index_rows_that_fall(data: Path) -> None:
    index = first_with(data, ".index", OFFSET_INDEX_ENTRY.size)
    rows = index.read_bytes()
    index.write_bytes(rows[8:16] + rows[:8] + rows[16:])
    code, lines = verify(data)
    assert code == 1
    assert "row 1" in lines[0]
    assert "does not rise above" in lines[0]


def test_an_index_row_behind_the_log(data: Path) -> None:
    index = sorted((data / "topic-0").glob("*.index"))[0]
    index.write_bytes(index.read_bytes() + OFFSET_INDEX_ENTRY.pack(500, 1 << 20))
    code, lines = verify(data)
    assert code == 1
    assert "is behind the segment's last batch" in lines[0]


def test_a_row_of_a_set_that_was_appended_at_once_is_right(data: Path) -> None:
    """Kafka's followers and its cleaner index the last offset of each append."""
    index = first_with(data, ".index", OFFSET_INDEX_ENTRY.size)
    rows = index.read_bytes()
    offset, position = OFFSET_INDEX_ENTRY.unpack_from(rows)
    index.write_bytes(OFFSET_INDEX_ENTRY.pack(offset + 2, position) + rows[8:])
    assert verify(data)[0] == 0
    index.write_bytes(OFFSET_INDEX_ENTRY.pack(offset + 1, position) + rows[8:])
    assert verify(data)[0] == 1, "no batch ends there"


def test_a_time_index_that_lies(data: Path) -> None:
    index = first_with(data, ".timeindex", TIME_INDEX_ENTRY.size, rows=1)
    timestamp_ms, offset = TIME_INDEX_ENTRY.unpack_from(index.read_bytes())
    index.write_bytes(TIME_INDEX_ENTRY.pack(timestamp_ms - 1, offset) + index.read_bytes()[12:])
    code, lines = verify(data)
    assert code == 1
    assert f"row 0 names timestamp {timestamp_ms - 1} at offset" in lines[0]


def test_a_time_index_without_its_last_row(data: Path) -> None:
    index = first_with(data, ".timeindex", TIME_INDEX_ENTRY.size)
    index.write_bytes(index.read_bytes()[:-12])
    code, lines = verify(data)
    assert code == 1
    assert "but the segment's largest timestamp is" in lines[0]


def test_indexes_that_are_not_there_are_made_by_a_start(data: Path) -> None:
    first_with(data, ".index", OFFSET_INDEX_ENTRY.size).unlink()
    code, lines = verify(data)
    assert code == 0
    assert "the file is missing: a broker creates it when it starts" in lines[0]


# --- producers and transactions -------------------------------------------------------------------
def test_a_snapshot_that_the_log_does_not_bear_out(data: Path) -> None:
    snapshot = sorted((data / "topic-0").glob("*.snapshot"))[-1]
    (entry,) = decode_producer_snapshot(snapshot.read_bytes())
    wrong = entry._replace(last_sequence=entry.last_sequence + 2, producer_epoch=3)
    snapshot.write_bytes(encode_producer_snapshot([wrong]))
    code, lines = verify(data)
    assert code == 1
    assert lines[0] == (
        f"error: topic-0/{snapshot.name}: producer 7: epoch 3 (expected 0 from the log), "
        f"last sequence 61 (expected 59 from the log)"
    )
    snapshot.write_bytes(encode_producer_snapshot([entry, entry._replace(producer_id=8)]))  # type: ignore[arg-type]
    code, lines = verify(data)
    assert code == 1
    assert "the last offset of producer 8 is" in lines[0]


def test_a_producer_that_has_expired_is_a_note(data: Path) -> None:
    snapshot = sorted((data / "topic-0").glob("*.snapshot"))[-1]
    snapshot.write_bytes(encode_producer_snapshot([]))
    code, lines = verify(data)
    assert code == 0
    assert lines[0].startswith(f"note: topic-0/{snapshot.name}: 1 producers of the log are not")


def test_a_snapshot_of_what_is_not_there_yet(data: Path) -> None:
    folder = data / "topic-0"
    shutil.copy(sorted(folder.glob("*.snapshot"))[-1], folder / f"{99:020d}.snapshot")
    code, lines = verify(data)
    assert code == 1
    assert "the snapshot is of offset 99, but the log ends at 60" in lines[0]


def test_producers_beyond_what_is_kept_in_memory_are_not_compared(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_checks, "MOST_ENTRIES", 0)
    code, lines = verify(data)
    assert code == 0
    assert "too many producers and aborted transactions" in lines[0]


def test_producers_of_segments_that_are_gone_are_believed(data: Path) -> None:
    first = logs(data)[0]
    for path in (data / "topic-0").glob(f"{first.stem}.*"):
        path.unlink()
    assert verify(data)[0] == 0


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"first_offset": -1}, "first offset 3, but the log has 4"),
        ({"last_stable_offset": 1}, "last stable offset 9, but the log has 8"),
        ({"last_offset": -1}, "the log has no abort marker of the producer there"),
        ({"producer_id": 5}, "the log has no abort marker of the producer there"),
    ],
)
def test_a_transaction_index_that_lies(
    transactions: Path, change: dict[str, int], expected: str
) -> None:
    index = transactions / f"{0:020d}.txnindex"
    first, *others = decode_transaction_index(index.read_bytes())
    fields = {name: getattr(first, name) + by for name, by in change.items()}
    index.write_bytes(encode_transaction_index([first._replace(**fields), *others]))
    code, lines = verify(transactions)
    assert code == 1
    assert any(expected in line for line in lines), lines


def test_an_abort_that_the_index_does_not_know(transactions: Path) -> None:
    index = transactions / f"{0:020d}.txnindex"
    index.write_bytes(encode_transaction_index(decode_transaction_index(index.read_bytes())[1:]))
    code, lines = verify(transactions)
    assert code == 1
    assert "has no row: consumers would take its records for committed" in lines[0]
    index.unlink()
    assert verify(transactions)[0] == 1


def test_a_snapshot_that_forgets_the_open_transaction(transactions: Path) -> None:
    (snapshot,) = transactions.glob("*.snapshot")
    entries = [
        entry._replace(current_transaction_first_offset=-1)  # type: ignore[arg-type]
        for entry in decode_producer_snapshot(snapshot.read_bytes())
    ]
    snapshot.write_bytes(encode_producer_snapshot(entries))
    code, lines = verify(transactions)
    assert code == 1
    assert "transaction's start -1 (expected" in lines[0]


# --- epochs, names, the directory -----------------------------------------------------------------
def test_leader_epochs_against_the_batches(data: Path) -> None:
    file = data / "topic-0" / "leader-epoch-checkpoint"
    assert file.read_text() == "0\n2\n0 0\n1 40\n"
    file.write_text("0\n2\n0 0\n1 50\n")
    code, lines = verify(data)
    assert code == 1
    assert "the file has epoch 0 for offset 40, the batch has 1" in lines[0]
    # DeleteRecords cuts epochs, but not the segment.
    file.write_text("0\n1\n1 40\n")
    assert verify(data)[0] == 0
    # A batch's epoch is in no CRC.
    file.write_text("0\n2\n0 0\n1 40\n")
    flip(logs(data)[-1], 12, 0x01)
    assert verify(data)[0] == 1


def test_leftovers_and_strangers_are_named_and_are_no_damage(data: Path) -> None:
    folder = data / "topic-0"
    (folder / f"{0:020d}.log.deleted").touch()
    (folder / f"{77:020d}.index").touch()
    (folder / "notes.txt").touch()
    (data / "klog-metadata.tmp").touch()
    (data / "stranger").mkdir()
    (data / ("gone-0." + "0" * 32 + "-delete")).mkdir()
    with (data / "replication-offset-checkpoint").open("w") as file:
        file.write("0\n2\ntopic 0 60\nlost 3 5\n")
    code, lines = verify(data)
    assert code == 0
    text = "\n".join(lines)
    for expected in (
        "recoverable: topic-0/00000000000000000000.log.deleted: a leftover",
        "recoverable: topic-0/00000000000000000077.index: the segment's .log file is missing",
        "note: topic-0/notes.txt: not a file of a partition",
        "recoverable: klog-metadata.tmp: a leftover of a write",
        "note: stranger: the directory 'stranger' does not belong to a partition",
        "-delete: a deleted partition",
        "note: replication-offset-checkpoint: it has a row for lost-3, but there is no such folder",
    ):
        assert expected in text


def test_a_damaged_small_file(data: Path) -> None:
    (data / "meta.properties").write_text("version=7\n")
    (data / "topic-0" / "partition.metadata").write_bytes(b"\xff")
    code, lines = verify(data)
    assert code == 1
    assert lines[0] == "error: meta.properties: meta.properties: version 7, expected 0 or 1"
    assert "error: topic-0/partition.metadata: " in lines[1]


def test_a_segment_that_is_gone_from_the_middle_is_said(data: Path) -> None:
    gone = logs(data)[1]
    for path in (data / "topic-0").glob(f"{gone.stem}.*"):
        path.unlink()
    _, lines = verify(data)
    expected = f"offsets {int(gone.stem)} to {int(logs(data)[1].stem) - 1} are missing"
    assert any(expected in line for line in lines)


def test_one_file_is_not_given_more_than_its_share_of_lines(data: Path) -> None:
    index = logs(data)[0].with_suffix(".txnindex")
    rows = [(1, number, number, number) for number in range(100)]
    index.write_bytes(encode_transaction_index(rows))  # type: ignore[arg-type]
    code, lines = verify(data)
    assert code == 1
    assert len([line for line in lines if index.name in line]) == 21
    assert any(line.endswith("80 more findings") for line in lines)
    assert lines[-1].startswith("100 errors: ")


def test_a_running_broker_is_noted(data: Path) -> None:
    lock = data / ".lock"
    lock.touch()
    assert lock_holder(lock) is None
    code = (
        "import sys\n"
        "from klog_broker.runtime.disk.files import RealFiles\n"
        "from pathlib import Path\n"
        "held = RealFiles().lock(Path(sys.argv[1]))\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert lock_holder(lock) == holder.pid
        with logs(data)[-1].open("ab") as file:
            file.write(batch_at(60)[:-3])
        # Rows may come while it is looked at: behind what was the end of an index a moment ago.
        index = logs(data)[-1].with_suffix(".index")
        index.write_bytes(index.read_bytes() + bytes(8) + OFFSET_INDEX_ENTRY.pack(90, 1 << 20))
        exit_code, lines = verify(data)
        assert holder.stdin is not None
        holder.stdin.close()
    assert exit_code == 0
    assert lines[0].startswith(
        f"note: .lock: a broker runs on the directory (process {holder.pid})"
    )
    assert lines[1].startswith("recoverable: ")


# --- how it is called -----------------------------------------------------------------------------
def test_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = klog("verify", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"klog: {tmp_path} is no data directory (log.dirs) and no")
    result = klog("verify", tmp_path / "missing")
    assert result.exit_code == 2
    assert result.stderr == f"klog: cannot read {tmp_path / 'missing'}: No such file or directory\n"
    assert klog("verify").exit_code == 2
    assert klog("verify", tmp_path / "file").exit_code == 2


def test_a_log_whose_sync_was_not_over_is_recoverable(data: Path) -> None:
    notes = SyncNotes(RealFiles(), data)
    notes.open()
    with pytest.raises(OSError, match="no more"), notes.note_sync("t-0"):
        raise OSError(5, "no more")
    notes.close()
    code, lines = verify(data)
    assert code == 0
    assert lines[0] == (
        "recoverable: klog-syncs: a sync of t-0 did not end: the next start writes the log's end "
        "again"
    )
