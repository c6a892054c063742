"""Changes of client quotas in a cluster of three brokers, as each broker describes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from pyspark_klog.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from pyspark_klog.protocol.apis.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from pyspark_klog.testing import KlogCluster
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient

NUMBERS = (1, 2, 3)
KEYS = ("consumer_byte_rate", "producer_byte_rate", "request_percentage")
USERS = ("ann", "bob")
ROUNDS = 20
ANY_NAME = 2

Quotas = dict[str, float]
"""The quotas of one user by key; empty if the user has none."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KlogCluster]:
    with KlogCluster(zookeeper_session_timeout_ms=6_000) as started:
        yield started


def client_of(cluster: KlogCluster, number: int) -> RawClient:
    host, port = cluster.broker(number).bootstrap_servers.split(":")
    return RawClient((host, int(port)))


def describe(client: RawClient) -> dict[str, Quotas]:
    component = ComponentData(entity_type="user", match_type=ANY_NAME, match=None)
    response = client.call(DescribeClientQuotasRequest(components=[component]), 1)
    assert response.error_code == 0, response
    found: dict[str, Quotas] = {user: {} for user in USERS}
    for entry in response.entries:
        found[entry.entity[0].entity_name] = {each.key: each.value for each in entry.values}
    return found


def change(client: RawClient, value: float | None) -> None:
    """Set all quotas of all users to a value; None removes them."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key in KEYS]
    entries = [
        EntryData(entity=[EntityData(entity_type="user", entity_name=user)], ops=ops)
        for user in USERS
    ]
    response = client.call(AlterClientQuotasRequest(entries=entries), 1)
    assert [each.error_code for each in response.entries] == [0] * len(USERS)


@contextmanager
def seen_at(cluster: KlogCluster, number: int) -> Iterator[dict[str, list[Quotas]]]:
    """Describe the quotas at a broker all the time. The lists get each new state of a user."""
    seen: dict[str, list[Quotas]] = {user: [] for user in USERS}
    is_over, has_begun = Event(), Event()

    def poll_quotas() -> None:
        with client_of(cluster, number) as client:
            while not is_over.is_set():
                for user, quotas in describe(client).items():
                    if seen[user][-1:] != [quotas]:
                        seen[user].append(quotas)
                has_begun.set()

    thread = Thread(target=poll_quotas)
    thread.start()
    try:
        assert has_begun.wait(60)
        yield seen
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("number", NUMBERS)
def test_changed_quotas_are_seen_at_once_where_they_were_acknowledged_and_whole_elsewhere(
    cluster: KlogCluster, number: int
) -> None:
    others = [each for each in NUMBERS if each != number]
    with (
        client_of(cluster, number) as client,
        seen_at(cluster, others[0]) as seen,
        seen_at(cluster, others[1]) as also_seen,
    ):
        for value in (*range(1, ROUNDS + 1), None):
            change(client, value)
            expected = {} if value is None else dict.fromkeys(KEYS, float(value))
            assert describe(client) == dict.fromkeys(USERS, expected)
            if value in (ROUNDS, None):
                eventually(
                    lambda expected=expected: all(
                        states[-1] == expected
                        for each in (seen, also_seen)
                        for states in each.values()
                    ),
                    deadline_s=30,
                    what="the change at the other brokers",
                )
    for states in (*seen.values(), *also_seen.values()):
        assert all(set(each) in (set(), set(KEYS)) for each in states), states
        assert all(len(set(each.values())) <= 1 for each in states), states
        values = [each[KEYS[0]] for each in states[1:-1]]
        assert values == sorted(values)
        assert states[0] == states[-1] == {}
