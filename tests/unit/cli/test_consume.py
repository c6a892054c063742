"""When `klog consume` ends, and when it goes on, with leaders on paper."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from klog_broker.cli.records.consume import Printer
from klog_broker.cli.records.record_output import RecordFormat
from klog_broker.cli.records.start_offsets import GroupPositions
from pyspark_klog.client.errors import ConnectionFailed, TimedOut
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import PartitionData
from tests.support.client.scripted_leaders import PARTITIONS, PaperClient, Reply, records, reply

AWAY = ConnectionFailed("broker 2 is away")


class PaperGroup:
    """Takes commits, after the given errors."""

    def __init__(self, *errors: KlogError) -> None:
        self.errors = list(errors)
        self.at: dict[TopicPartition, int] = {}

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.at = dict(positions)


def printer(
    client: PaperClient,
    *,
    most_records: int | None = None,
    idle_ms: int | None = None,
    group: PaperGroup | None = None,
) -> Printer:
    form = RecordFormat(("offset",), False, b"\t", b"null", for_terminal=False)
    at = dict.fromkeys(PARTITIONS, 10)
    return Printer(
        cast(Any, client), at, form, cast(GroupPositions | None, group), most_records, idle_ms
    )


@pytest.fixture(autouse=True)
def printed(capsysbinary: pytest.CaptureFixture[bytes]) -> pytest.CaptureFixture[bytes]:
    return capsysbinary


class TestIdle:
    def test_the_end_is_where_all_leaders_have_nothing_more(self, printed: Any) -> None:
        late: list[Reply] = [AWAY, AWAY, AWAY, reply(records(2, 10, 1))]
        client = PaperClient({1: [reply(records(0, 10, 2))], 2: late}, ends=[1, 2])
        printer(client, idle_ms=100).run()
        assert printed.readouterr() == (b"10\n11\n10\n", b"")

    def test_an_unavailable_leader_does_not_end_the_command(self, printed: Any) -> None:
        away: list[Reply] = [AWAY] * 99
        client = PaperClient(
            {1: [reply(records(0, 10, 2))], 2: away}, ends=[1], default_api_timeout_ms="1000"
        )
        with pytest.raises(TimedOut, match="t-2 could not be read from offset 10 on within 1000"):
            printer(client, idle_ms=100).run()
        assert printed.readouterr() == (b"10\n11\n", b"")

    def test_a_leader_that_says_nothing_is_no_end(self, printed: Any) -> None:
        client = PaperClient({1: [reply(records(0, 10, 2))]}, ends=[1, 2])
        printer(client, idle_ms=100).run()
        assert client.now >= 500
        assert printed.readouterr() == (b"10\n11\n", b"")

    def test_what_is_not_shown_is_no_end_either(self, printed: Any) -> None:
        nothing = PartitionData(partition_index=1, records=None)
        hidden: list[Reply] = []
        for offset in range(10, 15):
            hidden += [AWAY, reply(records(0, offset, 1, is_control=True), nothing)]
        client = PaperClient(
            {1: [*hidden, reply(records(0, 15, 1))]}, ends=[1, 2], fetch_max_wait_ms="10"
        )
        printer(client, idle_ms=150).run()
        assert printed.readouterr() == (b"15\n", b"")


class TestWithoutAnEnd:
    def test_brokers_are_waited_for_and_that_is_logged_now_and_then(self, printed: Any) -> None:
        away: list[Reply] = [AWAY] * 30
        client = PaperClient(
            {2: [*away, reply(records(2, 10, 1))]}, ends=[1], default_api_timeout_ms="1000"
        )
        printer(client, most_records=1).run()
        assert 35_000 < client.now < 60_000
        out, said = printed.readouterr()
        assert out == b"10\n"
        sentence = (
            b"klog: t-2 could not be read from offset 10 on within 1000 ms: broker 2 is away; "
            b"retrying\n"
        )
        assert said == 2 * sentence

    def test_a_commit_that_finds_no_coordinator_is_made_up_for(self, printed: Any) -> None:
        group = PaperGroup(
            TimedOut("no coordinator of g"), BrokerError(ErrorCode.NOT_COORDINATOR, "moved")
        )
        away: list[Reply] = [AWAY] * 20
        client = PaperClient(
            {1: [reply(records(0, 10, 2))], 2: [*away, reply(records(2, 10, 1))]}, ends=[1]
        )
        printer(client, most_records=3, group=group).run()
        assert group.errors == []
        assert group.at == {PARTITIONS[0]: 12, PARTITIONS[1]: 10, PARTITIONS[2]: 10}
        assert printed.readouterr().err == b"klog: no coordinator of g; retrying\n"

    def test_a_commit_that_is_refused_ends_it(self) -> None:
        group = PaperGroup(BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not yours"))
        with pytest.raises(BrokerError, match="not yours"):
            printer(PaperClient({}), group=group).run()
