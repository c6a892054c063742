"""Followers on real logs, under a leader that changes, loses records and is sometimes unreachable:
in the end each log equals the leader's."""

from random import Random
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import FetchRequest, FetchResponse, PartitionData
from tests.support.cluster.followers import BACKOFF_MS, TOPIC, FetcherWorld, contents, topic_id
from tests.support.cluster.replicas import ME, OTHER, role_assignment
from tests.support.log.harness import append_in, batch, start_over, truncate

PARTITIONS = range(3)
ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)


class Schedule:
    """The faults of one seed, for three partitions that follow."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.world = FetcherWorld()
        if self.chance.random() < 0.4:
            self.world.flush_each_message()
        self.epoch = dict.fromkeys(PARTITIONS, 0)
        for number in PARTITIONS:
            self.world.model_leader.lead(0, number)
            self.follow(number)
        self.world.helpers.run_all()
        self.world.turns()

    def follow(self, number: int) -> None:
        """Apply a role change, even while the log is being truncated."""
        given = role_assignment(
            self.epoch[number],
            partition=TopicPartition(TOPIC, number),
            topic_id=topic_id(),
            leader=OTHER,
            replicas=(ME, OTHER),
        )
        self.world.replicas.apply([given], lambda _: None)

    def step(self) -> None:
        chance, world = self.chance, self.world
        number = chance.choice(PARTITIONS)
        act = chance.choice(
            (self.append,) * 3
            + (self.other_leader, self.lead_here, self.delete_records, self.start_over)
            + (self.lose_connection, self.lie)
        )
        act(number)
        for _ in range(chance.randint(0, 3)):
            chance.choice((world.turns, world.answer, world.answer, self.help))()
        if chance.random() < 0.2:
            world.turns(after_ms=BACKOFF_MS)

    def help(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            if self.world.helpers.waiting:
                self.world.helpers.run_one()
                self.world.turns()

    def append(self, number: int) -> None:
        count, size = self.chance.randint(1, 4), self.chance.choice((10, 10, 4_000))
        value = b"%d" % self.chance.getrandbits(40)
        self.world.model_leader.append(self.epoch[number], count, number, value=value.ljust(size))

    def other_leader(self, number: int) -> None:
        """Change the leader: its log may lack unconfirmed records, and may have its own epoch."""
        log = self.world.model_leader.log(number)
        bases = [place.base_offset for each in log.segments for place in each.batch_positions()]
        ends = [base for base in bases[-2:] if base >= log.log_start_offset]
        truncate(log, self.chance.choice([*ends, log.log_end_offset]))
        self.epoch[number] += 2
        self.world.model_leader.lead(self.epoch[number], number)
        self.follow(number)

    def lead_here(self, number: int) -> None:
        """Lead here for an epoch in which no record is confirmed."""
        log = self.world.log(number)
        if log.is_being_cut or self.world.replicas.partition(TOPIC, number) is None:
            return
        self.epoch[number] += 1
        given = role_assignment(
            self.epoch[number],
            partition=TopicPartition(TOPIC, number),
            topic_id=topic_id(),
            replicas=(ME, OTHER),
        )
        self.world.replicas.apply([given], lambda _: None)
        if not log.is_being_cut:
            append_in(log, self.epoch[number], batch(self.chance.randint(1, 3), value=b"mine"))
        self.epoch[number] += 1
        self.world.model_leader.lead(self.epoch[number], number)
        self.follow(number)

    def delete_records(self, number: int) -> None:
        log = self.world.model_leader.log(number)
        start, end = log.log_start_offset, log.high_watermark
        log.delete_records_before(self.chance.randint(start, end))

    def start_over(self, number: int) -> None:
        """Retention has taken all, or an operator."""
        if self.chance.random() < 0.3:
            log = self.world.model_leader.log(number)
            start_over(log, log.log_end_offset + self.chance.randint(0, 5))
            self.epoch[number] += 1
            self.world.model_leader.lead(self.epoch[number], number)
            self.follow(number)

    def lose_connection(self, _number: int) -> None:
        if self.world.asks and self.chance.random() < 0.5:
            self.world.asks.popleft().fail()
            self.world.turns()

    def lie(self, number: int) -> None:
        chance, leader = self.chance, self.world.model_leader

        def change(key: Any, data: PartitionData) -> PartitionData:
            if chance.random() < 0.5:
                data.error_code, data.records = chance.choice(ERRORS), b""
            elif isinstance(data.records, bytes) and data.records:
                damaged = bytearray(data.records)
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
                data.records = bytes(damaged)
            return data

        asks = self.world.asks
        if asks and isinstance(asks[0].message, FetchRequest) and chance.random() < 0.3:
            self.world.asks.popleft().answer(FetchResponse(error_code=chance.choice(ERRORS)))
        leader.part_of = change
        self.world.answer()
        leader.part_of = lambda _, data: data

    def check(self) -> None:
        for number in PARTITIONS:
            found = self.world.replicas.partition(TOPIC, number)
            if found is not None and found.log is not None:
                log = found.log
                assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
                assert not log.is_offline

    def come_to_rest(self) -> None:
        for number in PARTITIONS:
            self.world.model_leader.append(self.epoch[number], number=number)
        for _ in range(12):
            self.world.run()
            self.world.turns(after_ms=BACKOFF_MS)

    def check_equality(self) -> None:
        for number in PARTITIONS:
            own, leaders = self.world.log(number), self.world.model_leader.log(number)
            assert contents(own) == contents(leaders)
            assert own.log_start_offset == leaders.log_start_offset
            assert own.high_watermark == leaders.high_watermark


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_each_log_becomes_the_leaders(first: int) -> None:
    for seed in range(first, first + 10):
        schedule = Schedule(seed)
        try:
            for _ in range(60):
                schedule.step()
                schedule.check()
            schedule.come_to_rest()
            schedule.check_equality()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
