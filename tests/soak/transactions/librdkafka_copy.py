"""Consume, transform, produce with librdkafka: a process that a soak kills.

Its arguments are SERVERS GROUP SOURCE TARGET TRANSACTIONAL_ID [INSTANCE]. The process prints a line
for each transaction, and ends with its standard input: ``committed RECORDS``; ``aborted WHY`` (it
continues from the committed positions); ``fenced WHY`` (its producer must not go on: it ends with
the code `FENCED`). CopyLoop.java does the same.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.soak.transactions.check import Input, value_of

T = TypeVar("T")

FENCED = 3
"""The exit code of a process whose producer must not go on."""
_MOST_RECORDS = 300
_COMMIT_INTERVAL_S = 0.2
_CALL_S = 10.0
_SESSION_MS = 3_000
_TRANSACTION_MS = 8_000
_CLIENT = {
    "reconnect.backoff.max.ms": 500,  # a broker that is down is back soon
    # A broker may be suspended while others take over its partitions.
    "socket.timeout.ms": 6_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    # A producer that starts over from its bootstrap servers while the broker is down hangs in
    # send_offsets_to_transaction for ever: librdkafka's issues 5511 and 5456.
    "metadata.recovery.strategy": "none",
    # Close idle connections soon. A broker that leaves the metadata for a moment is given up, but
    # stays in the producer's table of coordinators. Then send_offsets_to_transaction looks for
    # another coordinator only when some broker's connection opens or closes.
    "connections.max.idle.ms": 3_000,
}


class Names(NamedTuple):
    """The arguments of the command line."""

    servers: str
    group: str
    source: str
    target: str
    transactional_id: str
    instance: str | None = None


class CopyLoop:
    """The loop of one process: one transaction after the other."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._producer = Producer(
            _CLIENT
            | {
                "bootstrap.servers": names.servers,
                "transactional.id": names.transactional_id,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "linger.ms": 2,
                # A key has one partition, whichever client copies it: Java's clients use the same
                # partitioner.
                "partitioner": "murmur2_random",
            }
        )
        static = {} if names.instance is None else {"group.instance.id": names.instance}
        self._consumer = Consumer(
            _CLIENT
            | static
            | {
                "bootstrap.servers": names.servers,
                "group.id": names.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": _SESSION_MS,
                "heartbeat.interval.ms": 500,
            }
        )
        self._assignments = 0
        self._copied = 0
        self._member: object | None = None
        """The group metadata of the present assignment; None: commit nothing."""

    def run(self) -> None:
        """Copy for ever; exit with `FENCED` when the producer must not go on."""
        self._again(lambda: self._producer.init_transactions(_CALL_S))
        self._consumer.subscribe(
            [self._names.source],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )
        print("ready", flush=True)
        while True:
            message = self._poll(0.5)
            if message is not None and self._member is not None:
                self._transaction(message, self._member)

    # --- the group -------------------------------------------------------------------------------
    def _assigned(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self._assignments += 1
        # Take the metadata here, and not when a transaction commits: librdkafka forgets the
        # generation of a member that slept too long, and offsets without a generation are not
        # fenced.
        member = consumer.consumer_group_metadata()
        self._member = member if consumer.memberid() else None

    def _revoked(self, _: Consumer, __: list[TopicPartition]) -> None:
        self._assignments += 1
        self._member = None

    def _poll(self, wait_s: float) -> Message | None:
        message = self._consumer.poll(wait_s)
        if message is not None and message.error() is not None:
            _end_if_fatal(KafkaException(message.error()))
            return None
        return message

    # --- a transaction ---------------------------------------------------------------------------
    def _transaction(self, first: Message, member: object) -> None:
        """Copy records until it is time to commit, beginning with ``first``."""
        try:
            self._producer.begin_transaction()
            positions = self._copy(first)
            if positions is None:
                self._go_back("the partitions are assigned anew")
                return
            where = [TopicPartition(self._names.source, p, o) for p, o in positions.items()]
            self._again(lambda: self._producer.send_offsets_to_transaction(where, member, _CALL_S))
            self._again(lambda: self._producer.commit_transaction(_CALL_S))
        except KafkaException as error:
            _end_if_fatal(error)
            if not must_abort(error.args[0]):
                raise
            self._go_back(str(error))
        else:
            print(f"committed {self._copied}", flush=True)

    def _copy(self, first: Message) -> dict[int, int] | None:
        """The positions behind the copied records; None if the assignment has changed."""
        assignments = self._assignments
        positions: dict[int, int] = {}
        self._copied = 0
        message: Message | None = first
        end_s = time.monotonic() + _COMMIT_INTERVAL_S
        while True:
            if message is not None:
                where = message.partition(), message.offset()
                source = Input(*where, message.key(), int(message.value()))
                self._producer.produce(self._names.target, value_of(source), source.key)
                positions[source.partition] = source.offset + 1
                self._copied += 1
            left_s = end_s - time.monotonic()
            if left_s <= 0 or self._copied == _MOST_RECORDS:
                return positions
            message = self._poll(left_s)
            if self._assignments != assignments:
                return None

    def _go_back(self, why: str) -> None:
        """Abort, and continue from the committed positions."""
        try:
            self._again(lambda: self._producer.abort_transaction(_CALL_S))
        except KafkaException as error:
            _end_if_fatal(error)
            raise
        print(f"aborted {why}", flush=True)
        assigned = self._consumer.assignment()
        found = self._again(lambda: self._consumer.committed(assigned, _CALL_S))
        # librdkafka refuses seek() for a partition that it does not fetch yet.
        self._consumer.assign(
            [TopicPartition(each.topic, each.partition, max(each.offset, 0)) for each in found]
        )

    def _again(self, call: Callable[[], T]) -> T:
        """Call until it works; raise errors that must not be retried."""
        while True:
            try:
                return call()
            except KafkaException as error:
                if not may_call_again(error.args[0]):
                    raise


# Errors of the consumer's calls while a broker is down, or while the group's coordinator moves.
_MAY_PASS = (
    "_TRANSPORT",
    "_TIMED_OUT",
    "_WAIT_COORD",
    "_ALL_BROKERS_DOWN",
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
)


def may_call_again(error: KafkaError) -> bool:
    """Whether a failed call may work the next time.

    In a transaction that must be aborted no call works, whatever the error: _TIMED_OUT may also
    come from the transaction's records.
    """
    if error.txn_requires_abort():
        return False
    return error.retriable() or error.name() in _MAY_PASS


def must_abort(error: KafkaError) -> bool:
    """Whether the transaction has failed.

    `Producer.produce` only reports that an earlier error has ended the transaction or the producer;
    the abort shows which.
    """
    return error.txn_requires_abort() or error.name() in ("_STATE", "_FATAL")


def _end_if_fatal(error: KafkaException) -> None:
    if error.args[0].fatal():
        print(f"fenced {error}", flush=True)
        os._exit(FENCED)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    CopyLoop(Names(*sys.argv[1:])).run()
