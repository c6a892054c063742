"""The coordinator runtime on a log in memory: loading, finding, visibility and its ends."""

from collections.abc import Iterable

import pytest

from klog_broker.coordinator import loading
from klog_broker.coordinator.effects import Effects, Machine
from klog_broker.coordinator.errors import append_client_error
from klog_broker.coordinator.loading import KernelWalk
from klog_broker.coordinator.runtime import CoordinatorRuntime
from klog_broker.coordinator.shard import RecordProducer, Shard, StateRecordFormat
from klog_broker.coordinator.timeline import Timeline
from klog_broker.log.errors import LogStorageError, RecordTooLarge
from klog_broker.runtime.event_loop.slices import SLICE_ELEMENTS
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import Offset
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from tests.support.cluster.coordinators import CoordinatorTime
from tests.support.cluster.state_log import MemoryStateLog

NONE, NOT_COORDINATOR = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR


class Texts:
    """A state: the newest text by key, and the offset of each."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, str]] = {}
        self.breaks_at: str | None = None

    def apply(self, offset: Offset, key: str, value: str | None, _: RecordProducer | None) -> None:
        if value is not None and value == self.breaks_at:
            raise ZeroDivisionError
        if value is None:
            self.found.pop(key, None)
        else:
            self.found[key] = (offset, value)

    def apply_marker(self, producer: RecordProducer, *, is_commit: bool) -> None:
        raise AssertionError

    def machine(self, _: str) -> Machine[str, str] | None:
        return None

    def keys(self) -> Iterable[str]:
        return self.found

    def drop_if_unused(self, key: str) -> None:
        pass


TextShard = Shard[str, str, Texts]
TEXTS: StateRecordFormat[str, str] = StateRecordFormat(
    lambda key, value: (key.encode(), None if value is None else value.encode()),
    lambda key, value: (key.decode(), None if value is None else value.decode()),
)


class World:
    """A runtime of one partition."""

    def __init__(self, log: MemoryStateLog | None = None, *, with_kernel: bool = False) -> None:
        self.time = CoordinatorTime(new_walk=KernelWalk if with_kernel else lambda: None)
        self.log = log or MemoryStateLog()
        self.runtime: CoordinatorRuntime[str, str, Texts] = CoordinatorRuntime(
            self.time.services,
            TEXTS,
            lambda: (Texts(), Timeline[str, str]()),
            num_partitions=lambda: 1,
            append_timeout_ms=1_000,
            codec=Codec.NONE,
        )
        self.runtime.load_shard(self.log)

    @property
    def error(self) -> ErrorCode:
        return self.runtime.find("any")[0]

    @property
    def shard(self) -> TextShard:
        (found,) = self.runtime.shards()
        return found

    def loaded(self) -> dict[str, tuple[int, str]]:
        self.time.settle()
        assert self.error is NONE
        return self.shard.state.found

    def visible(self) -> list[ErrorCode]:
        """Return a list that is filled once all records appended so far are visible."""
        codes: list[ErrorCode] = []
        self.shard.when_visible(codes.append)
        return codes


def batch(*rows: tuple[str, str | None], codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec)
    for key, value in rows:
        builder.append(*TEXTS.encode(key, value), 1)
    return builder.build()


def log_of(*batches: bytes, gap: int = 0) -> MemoryStateLog:
    log = MemoryStateLog()
    for each in batches:
        log.put(each, gap=gap)
    return log


# --- loading -------------------------------------------------------------------------------------
def test_an_empty_log_is_loaded_at_once() -> None:
    assert World().error is NONE


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("with_kernel", [False, True])
def test_a_log_is_replayed_whatever_its_codec(codec: Codec, with_kernel: bool) -> None:
    rows = [(f"k{number % 7}", "x" * number) for number in range(200)]
    log = log_of(batch(*rows, ("gone", "x"), codec=codec), batch(("gone", None)))
    world = World(log, with_kernel=with_kernel)
    assert world.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    found = world.loaded()
    assert found == {f"k{n % 7}": (n, "x" * n) for n in range(193, 200)}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_the_kernel_checks_and_inflates(codec: Codec) -> None:
    good = batch(("a", "1" * 500), codec=codec)
    bad = bytearray(good)
    bad[-1] ^= 1
    walk = KernelWalk()
    whole = walk.check(good + good)
    assert whole.checked_bytes == 2 * len(good)
    assert sorted(whole.inflated) == ([] if codec is Codec.NONE else [0, len(good)])
    assert walk.check(good + bytes(bad)).checked_bytes == len(good)
    assert walk.check(good + good[:-1]).checked_bytes == len(good)


def test_of_what_is_read_at_once_only_so_much_is_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 batches of 4 KB each could inflate to 128 MiB each."""
    monkeypatch.setattr(loading, "MOST_INFLATED_BYTES", 1_000)
    texts = [f"{number}" * 600 for number in range(6)]
    codecs = [Codec.ZSTD, Codec.NONE, Codec.GZIP, Codec.NONE, Codec.LZ4, Codec.ZSTD]
    batches = [
        batch((f"k{number}", text), codec=codec)
        for number, (text, codec) in enumerate(zip(texts, codecs, strict=True))
    ]
    checked = KernelWalk().check(b"".join(batches))
    assert checked.data == b"".join(batches[:4])
    assert checked.checked_bytes == len(checked.data)
    assert len(checked.inflated) == 2
    assert checked.table is not None and len(checked.table) == 4
    loaded = World(log_of(*batches), with_kernel=True).loaded()
    assert loaded == {f"k{number}": (number, text) for number, text in enumerate(texts)}


def test_offsets_that_were_cleaned_away_are_no_damage() -> None:
    log = log_of(batch(("a", "1")), batch(("b", "2")), gap=10)
    log.log_end_offset = log.high_watermark = Offset(log.log_end_offset + 30)
    assert World(log).loaded() == {"a": (10, "1"), "b": (21, "2")}


def test_a_log_that_was_cut_meanwhile_is_loaded_as_it_is() -> None:
    log = log_of(*(batch((f"k{n}", "x" * 100_000)) for n in range(9)))
    world = World(log)
    log.batches = log.batches[:5]
    log.log_end_offset = log.high_watermark = Offset(5)
    assert set(world.loaded()) == {f"k{n}" for n in range(5)}


def test_a_log_whose_beginning_was_deleted_meanwhile_goes_on_behind_it() -> None:
    log = log_of(*(batch((f"k{n}", "x" * 100_000)) for n in range(9)))
    world = World(log)
    log.batches = log.batches[6:]
    log.log_start_offset = Offset(6)
    assert set(world.loaded()) >= {"k6", "k7", "k8"}


def test_records_before_the_logs_start_do_not_count() -> None:
    log = log_of(batch(("a", "1"), ("b", "2"), ("c", "3")))
    log.log_start_offset = Offset(1)
    assert World(log).loaded() == {"b": (1, "2"), "c": (2, "3")}


def test_a_log_that_ends_while_it_is_loaded_serves_nobody() -> None:
    world = World(log_of(batch(("a", "1"))))
    world.log.ended = "offline"
    world.time.settle()
    assert world.error is NOT_COORDINATOR


def test_a_shard_that_is_resigned_while_it_loads_is_forgotten() -> None:
    world = World(log_of(batch(("a", "1"))))
    world.runtime.unload_shard(0)
    world.time.settle()
    assert world.error is NOT_COORDINATOR
    assert not world.runtime.shards()


@pytest.mark.parametrize("with_kernel", [False, True])
def test_a_damaged_log_has_no_coordinator(with_kernel: bool) -> None:
    bad = bytearray(batch(("b", "2")))
    bad[-2] ^= 1
    world = World(log_of(batch(("a", "1")), bytes(bad)), with_kernel=with_kernel)
    world.time.settle()
    assert world.error is NOT_COORDINATOR


def test_a_long_log_is_applied_in_many_turns() -> None:
    rows = [(f"k{number}", "x") for number in range(4 * SLICE_ELEMENTS)]
    world = World(log_of(batch(*rows)))
    assert world.time.settle() >= 6
    assert len(world.loaded()) == len(rows)


def test_a_loaded_shard_answers_when_the_watermark_has_passed_what_it_read() -> None:
    log = MemoryStateLog()
    log.follows = False
    log.put(batch(("a", "1")))
    world = World(log)
    world.loaded()
    codes = world.visible()
    assert not codes
    log.high_watermark = log.log_end_offset
    world.time.services.purgatory.check(log.topic_partition)
    assert codes == [NONE]


# --- appending -----------------------------------------------------------------------------------
def test_records_are_applied_at_their_offsets() -> None:
    world = World()
    assert world.shard.append([("a", "1"), ("b", "2")]) == 2
    world.shard.append([("a", None), ("c", "3")])
    assert world.loaded() == {"b": (1, "2"), "c": (3, "3")}
    assert World(world.log).loaded() == world.loaded()


def test_an_append_that_is_refused_changes_nothing() -> None:
    world = World()
    world.log.fails = LogStorageError("full")
    with pytest.raises(LogStorageError):
        world.shard.append([("a", "1")])
    assert world.loaded() == {}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RecordTooLarge("x"), ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (LogStorageError("x"), NOT_COORDINATOR),
        (BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), NOT_COORDINATOR),
        (BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_errors_of_a_log_become_the_errors_of_kafkas_coordinator(
    error: KlogError, told: ErrorCode
) -> None:
    assert append_client_error(error) is told


def test_a_shard_that_cannot_apply_its_records_acknowledges_nothing_more() -> None:
    world = World()
    world.log.follows = False
    world.shard.append([("a", "1")])
    codes = world.visible()
    world.shard.state.breaks_at = "2"
    with pytest.raises(BrokerError) as caught:
        world.shard.append([("a", "2")])
    assert caught.value.code is NOT_COORDINATOR
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.error is NOT_COORDINATOR


def test_nobody_is_answered_before_what_the_watermark_has_passed_is_applied() -> None:
    world, codes = waiting()
    found: list[object] = []
    world.shard.when_visible(lambda _: found.append(dict(world.shard.state.found)))
    put = world.log.put

    def append(records: bytearray) -> Offset:
        end_offset = put(bytes(records))
        world.log.high_watermark = end_offset
        world.time.services.purgatory.check(world.log.topic_partition)
        assert not codes, "the state lags behind the log"
        return end_offset

    world.log.append = append  # type: ignore[method-assign]
    world.shard.append([("b", "2")])
    assert (codes, found) == ([NONE], [{"a": (0, "1"), "b": (1, "2")}])


# --- waiting -------------------------------------------------------------------------------------
def waiting() -> tuple[World, list[ErrorCode]]:
    world = World()
    world.log.follows = False
    world.shard.append([("a", "1")])
    codes = world.visible()
    assert not codes
    return world, codes


def test_waiting_requests_fail_when_the_partition_is_resigned() -> None:
    world, codes = waiting()
    world.runtime.unload_shard(0)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_waiting_requests_fail_when_the_log_ends() -> None:
    world, codes = waiting()
    world.log.ended = "deleted"
    world.time.services.purgatory.check(world.log.topic_partition)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_request_that_waits_too_long_times_out() -> None:
    world, codes = waiting()
    world.time.advance(1_000)
    assert codes == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_partition_that_is_led_again_is_loaded_again() -> None:
    world = World()
    world.shard.append([("a", "1")])
    old = world.shard
    world.runtime.load_shard(log_of(batch(("b", "2")), batch(("c", "3"))))
    world.log = MemoryStateLog()
    assert world.loaded() == {"b": (0, "2"), "c": (1, "3")}
    assert old.serving_error() is NOT_COORDINATOR


def test_a_partition_that_is_led_on_is_served_on() -> None:
    """In a newer epoch, a log without new records is served on, and waits for its watermark."""
    world, codes = waiting()
    served, newer = world.shard, log_of(batch(("a", "1")))
    newer.high_watermark = Offset(0)
    world.runtime.load_shard(newer)
    assert world.shard is served
    world.log.ended = "resigned"
    world.time.services.purgatory.check(newer.topic_partition)
    assert (codes, world.error) == ([], NONE)
    newer.high_watermark = newer.log_end_offset
    world.time.services.purgatory.check(newer.topic_partition)
    assert codes == [NONE]


def test_a_partition_that_is_led_on_while_it_loads_is_loaded_on() -> None:
    """Each follower that is lost begins an epoch: a long load would never end."""
    world = World(log_of(batch(("a", "1"))))
    first = world.shard
    newer = log_of(batch(("a", "1")))
    newer.leader_epoch = 1
    world.runtime.load_shard(newer)
    world.log.ended = "resigned"
    assert world.shard is first
    assert world.loaded() == {"a": (0, "1")}
    assert world.shard.log.leader_epoch == 1
    assert world.runtime.append_decision(world.shard, "b", (("b", "2"),)) is NONE
    assert newer.log_end_offset == 2


def test_a_log_that_has_grown_while_it_loads_is_loaded_again() -> None:
    world = World(log_of(batch(("a", "1"))))
    first = world.shard
    world.runtime.load_shard(log_of(batch(("a", "1")), batch(("b", "2"))))
    assert world.shard is not first
    assert world.loaded() == {"a": (0, "1"), "b": (1, "2")}


def test_a_machine_that_has_no_deadline_needs_no_timer() -> None:
    world = World()
    world.runtime.carry_out_effects(world.shard, "a", Effects())
    assert world.time.loop.next_wake_ms() is None


def test_a_failed_shard_is_not_led_on_but_loaded_again() -> None:
    world = World(log_of(batch(("a", "1"))))
    world.loaded()
    world.shard.fail(ValueError("a record could not be applied"))
    world.runtime.load_shard(log_of(batch(("a", "1"))))
    assert world.loaded() == {"a": (0, "1")}
