"""Quotas of clients: possible entities, entities that match a filter, and durable changes."""

import logging
import math
from typing import Any

import pytest

from klog_broker.api import alter_client_quotas, describe_client_quotas
from klog_broker.app import BrokerServer
from klog_broker.metadata import changes
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis import alter_client_quotas as altering
from pyspark_klog.protocol.apis import describe_client_quotas as describing
from tests.support.api.settings_requests import call_handler
from tests.support.cluster.server import start
from tests.support.log.harness import DATA
from tests.support.runtime.memory_files import MemoryFiles

USER, CLIENT, IP = "user", "client-id", "ip"
PRODUCED, CONSUMED, CPU = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
CONNECTIONS, MUTATIONS = "connection_creation_rate", "controller_mutation_rate"
EXACT, DEFAULT, ANY = range(3)

Names = dict[str, str | None]
Quotas = dict[str, float | None]
Who = frozenset[tuple[str, str | None]]


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def broker(files: MemoryFiles) -> BrokerServer:
    return start(files)


def entry(names: Names, quotas: Quotas) -> altering.EntryData:
    return altering.EntryData(
        entity=[
            altering.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
        ],
        ops=[
            altering.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ],
    )


def alter(broker: BrokerServer, *entries: altering.EntryData, **more: Any) -> dict[Who, str]:
    request = altering.AlterClientQuotasRequest(entries=list(entries), **more)
    rows = call_handler(broker, alter_client_quotas, request).entries
    # Each accepted change is answered with a remark: quotas have no effect yet.
    assert all(
        (row.error_code == 0) == (row.error_message == alter_client_quotas.WITHOUT_EFFECT)
        for row in rows
    )
    assert all(row.error_message for row in rows)
    found = {
        frozenset((each.entity_type, each.entity_name) for each in row.entity): ErrorCode(
            row.error_code
        ).name
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def put(broker: BrokerServer, names: Names, quotas: Quotas, **more: Any) -> str:
    (code,) = alter(broker, entry(names, quotas), **more).values()
    return code


def ask_for(
    broker: BrokerServer, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[Who, dict[str, float]] | str:
    """Return the matching entities' quotas, or the error."""
    rows = [
        describing.ComponentData(entity_type=kind, match_type=match_type, match=name)
        for kind, match_type, name in components
    ]
    request = describing.DescribeClientQuotasRequest(components=rows, strict=strict)
    answer = call_handler(broker, describe_client_quotas, request)
    if answer.error_code:
        assert answer.entries is None
        return ErrorCode(answer.error_code).name
    assert answer.error_message is None
    return {
        frozenset((each.entity_type, each.entity_name) for each in row.entity): {
            each.key: each.value for each in row.values
        }
        for row in answer.entries
    }


def who(**names: str | None) -> Who:
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


def test_quotas_are_set_changed_and_removed(broker: BrokerServer) -> None:
    assert ask_for(broker) == {}
    assert put(broker, {USER: "a"}, {PRODUCED: 100, CPU: 0.5}) == "NONE"
    assert put(broker, {USER: "a"}, {PRODUCED: 200, CONSUMED: 7}) == "NONE"
    assert ask_for(broker) == {who(user="a"): {PRODUCED: 200, CPU: 0.5, CONSUMED: 7}}
    assert put(broker, {USER: "a"}, {PRODUCED: None, "nonsense": None}) == "NONE"
    assert ask_for(broker) == {who(user="a"): {CPU: 0.5, CONSUMED: 7}}
    assert put(broker, {USER: "a"}, {CPU: None, CONSUMED: None}) == "NONE"
    assert put(broker, {USER: "never"}, {CPU: None}) == "NONE"
    assert put(broker, {USER: "never"}, {}) == "NONE"
    assert ask_for(broker) == {}


def test_a_restart_keeps_them_and_says_that_they_do_not_act(
    files: MemoryFiles, broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "klog.quota"):
        alter(
            broker,
            entry({USER: "a\n", CLIENT: None}, {PRODUCED: 1, CPU: math.inf}),
            entry({IP: None}, {CONNECTIONS: 5}),
        )
        assert b'"version":2' in files.read_bytes(DATA / "klog-metadata")
        again = start(files.killed())
    assert (
        ask_for(again)
        == ask_for(broker)
        == {
            who(user="a\n", client_id=None): {PRODUCED: 1, CPU: math.inf},
            who(ip=None): {CONNECTIONS: 5},
        }
    )
    told = [each.getMessage() for each in caplog.records if each.name == "klog.quota"]
    assert [line.partition(" users")[0] for line in told] == ["changed the quotas of 2", "2"]
    assert all("enforced yet" in line for line in told)


def test_without_quotas_the_file_is_as_it_was(files: MemoryFiles, broker: BrokerServer) -> None:
    before = files.read_bytes(DATA / "klog-metadata")
    put(broker, {USER: "a"}, {PRODUCED: 1})
    put(broker, {USER: "a"}, {PRODUCED: None})
    assert files.read_bytes(DATA / "klog-metadata") == before


def test_only_validated(broker: BrokerServer) -> None:
    assert put(broker, {USER: "a"}, {PRODUCED: 1}, validate_only=True) == "NONE"
    assert put(broker, {USER: "a"}, {PRODUCED: -1}, validate_only=True) == "INVALID_REQUEST"
    assert ask_for(broker) == {}


def test_each_entity_by_itself(broker: BrokerServer) -> None:
    found = alter(broker, entry({USER: "a"}, {PRODUCED: 1}), entry({"nope": "a"}, {PRODUCED: 1}))
    assert found == {who(user="a"): "NONE", who(nope="a"): "INVALID_REQUEST"}
    assert ask_for(broker) == {who(user="a"): {PRODUCED: 1}}
    assert alter(broker) == {}


def test_an_entity_that_is_named_twice_keeps_its_quotas(broker: BrokerServer) -> None:
    twice = [
        entry({USER: "a", CLIENT: "c"}, {PRODUCED: 1}),
        entry({USER: "b"}, {PRODUCED: 2}),
        entry({CLIENT: "c", USER: "a"}, {CONSUMED: 1}),
    ]
    assert alter(broker, *twice) == {
        who(user="a", client_id="c"): "INVALID_REQUEST",
        who(user="b"): "NONE",
    }
    assert ask_for(broker) == {who(user="b"): {PRODUCED: 2}}
    two = entry({USER: "a"}, {PRODUCED: 1})
    two.ops += two.ops
    assert alter(broker, two) == {who(user="a"): "INVALID_REQUEST"}


def test_of_two_names_of_one_type_the_last_one_counts(broker: BrokerServer) -> None:
    row = entry({USER: "a"}, {PRODUCED: 1})
    row.entity.append(altering.EntityData(entity_type=USER, entity_name="b"))
    assert alter(broker, row) == {who(user="b"): "NONE"}


@pytest.mark.parametrize(
    ("names", "quotas"),
    [
        ({}, {PRODUCED: 1}),
        ({"nope": "a"}, {PRODUCED: 1}),
        ({"": None}, {PRODUCED: 1}),
        ({USER: ""}, {PRODUCED: 1}),
        ({CLIENT: ""}, {PRODUCED: 1}),
        ({IP: ""}, {CONNECTIONS: 1}),
        ({IP: "1.2.3.4.5"}, {CONNECTIONS: 1}),
        ({IP: "some.host"}, {CONNECTIONS: 1}),
        ({IP: "1.2.3.4", USER: "a"}, {CONNECTIONS: 1}),
        ({CLIENT: None, IP: None}, {PRODUCED: 1}),
        ({IP: "1.2.3.4"}, {PRODUCED: 1}),
        ({USER: "a"}, {CONNECTIONS: 1}),
        ({USER: "a"}, {"nope": 1}),
        *(({USER: "a"}, {key: 0.0}) for key in (PRODUCED, CPU, MUTATIONS)),
        *(({USER: "a"}, {key: -1.0}) for key in (PRODUCED, CPU, MUTATIONS)),
        *(({USER: "a"}, {key: math.nan}) for key in (PRODUCED, CPU, MUTATIONS)),
        ({USER: "a"}, {PRODUCED: 0.5}),
        ({USER: "a"}, {CONSUMED: 7.9999999}),
        ({USER: "a"}, {CONSUMED: 1e19}),
        ({USER: "a"}, {CONSUMED: math.inf}),
        ({IP: None}, {CONNECTIONS: 2.0**31}),
        ({IP: None}, {CONNECTIONS: 1.5}),
    ],
)
def test_what_is_refused(broker: BrokerServer, names: Names, quotas: Quotas) -> None:
    assert put(broker, names, {MUTATIONS: 1, **quotas} if IP not in names else quotas) == (
        "INVALID_REQUEST"
    )
    assert ask_for(broker) == {}


@pytest.mark.parametrize(
    ("names", "quotas"),
    [
        ({USER: "<default>"}, {PRODUCED: 2.0**63}),
        ({USER: "a b/ü:*"}, {PRODUCED: 100.0000001}),
        ({CLIENT: None, USER: None}, {CPU: 1e19, MUTATIONS: 0.001}),
        ({IP: "::1"}, {CONNECTIONS: 2.0**31 - 1}),
        ({IP: "0:0:0:0:0:0:0:1"}, {CONNECTIONS: 1}),
    ],
)
def test_what_is_taken(broker: BrokerServer, names: Names, quotas: Quotas) -> None:
    assert put(broker, names, quotas) == "NONE"
    assert ask_for(broker) == {frozenset(names.items()): quotas}


def test_filters(broker: BrokerServer) -> None:
    everybody: dict[str, Names] = {
        "a": {USER: "a"},
        "any user": {USER: None},
        "c": {CLIENT: "c"},
        "a at c": {USER: "a", CLIENT: "c"},
        "any at c": {USER: None, CLIENT: "c"},
        "any at any": {USER: None, CLIENT: None},
        "there": {IP: "1.2.3.4"},
        "anywhere": {IP: None},
    }
    for names in everybody.values():
        put(broker, names, {CONNECTIONS if IP in names else PRODUCED: 1})

    def matching(*components: tuple[str, int, str | None], strict: bool = False) -> set[str]:
        asked = ask_for(broker, *components, strict=strict)
        assert not isinstance(asked, str)
        return {key for key, names in everybody.items() if frozenset(names.items()) in asked}

    users = {"a", "any user", "a at c", "any at c", "any at any"}
    assert matching() == set(everybody)
    assert matching(strict=True) == set()
    assert matching((USER, EXACT, "a")) == {"a", "a at c"}
    assert matching((USER, EXACT, "a"), strict=True) == {"a"}
    assert matching((USER, DEFAULT, None)) == {"any user", "any at c", "any at any"}
    assert matching((USER, DEFAULT, None), strict=True) == {"any user"}
    assert matching((USER, ANY, None)) == users
    assert matching((USER, ANY, None), strict=True) == {"a", "any user"}
    assert matching((USER, ANY, None), (CLIENT, EXACT, "c")) == {"a at c", "any at c"}
    assert matching((CLIENT, ANY, None), strict=True) == {"c"}
    assert matching((IP, ANY, None)) == {"there", "anywhere"}
    assert matching((IP, EXACT, "1.2.3.4")) == {"there"}
    assert matching((USER, EXACT, "")) == set()


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([(USER, EXACT, None)], "INVALID_REQUEST"),
        ([(USER, DEFAULT, "a")], "INVALID_REQUEST"),
        ([(USER, ANY, "a")], "INVALID_REQUEST"),
        ([(USER, 3, "a")], "INVALID_REQUEST"),
        ([(USER, -1, None)], "INVALID_REQUEST"),
        ([("", ANY, None)], "INVALID_REQUEST"),
        ([(USER, ANY, None), (USER, ANY, None)], "INVALID_REQUEST"),
        ([(USER, ANY, None), (IP, ANY, None)], "INVALID_REQUEST"),
        ([("nope", ANY, None)], "UNSUPPORTED_VERSION"),
    ],
)
def test_filters_that_are_refused(
    broker: BrokerServer, components: list[tuple[str, int, str | None]], code: str
) -> None:
    assert ask_for(broker, *components) == code


def test_so_many_have_quotas(broker: BrokerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_QUOTA_ENTITIES", 2)
    for name in ("a", "b"):
        assert put(broker, {USER: name}, {PRODUCED: 1}) == "NONE"
    assert put(broker, {USER: "c"}, {PRODUCED: 1}) == "POLICY_VIOLATION"
    assert put(broker, {USER: "a"}, {PRODUCED: 2}) == "NONE"
    instead = alter(broker, entry({USER: "c"}, {PRODUCED: 1}), entry({USER: "a"}, {PRODUCED: None}))
    assert set(instead.values()) == {"NONE"}
    assert ask_for(broker) == {who(user="b"): {PRODUCED: 1}, who(user="c"): {PRODUCED: 1}}


def test_one_error_for_a_whole_request() -> None:
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    request = altering.AlterClientQuotasRequest(entries=[entry({USER: "a"}, {})] * 2)
    answer = alter_client_quotas.API.error_response(request, code)
    assert [row.error_code for row in answer.entries] == [-1, -1]
    asked = describing.DescribeClientQuotasRequest()
    told: Any = describe_client_quotas.API.error_response(asked, code)
    assert (told.error_code, told.entries) == (-1, None)


def test_entities_that_are_only_looked_at_take_a_fifth_of_the_work(broker: BrokerServer) -> None:
    """Work is cut into slices by the number of steps: each step that is too few makes them long."""
    for number in range(20):
        assert put(broker, {USER: f"user-{number}"}, {CPU: 1.0}) == "NONE"

    def steps_of(name: str) -> int:
        rows = [describing.ComponentData(entity_type=USER, match_type=EXACT, match=name)]
        request = describing.DescribeClientQuotasRequest(components=rows)
        no_context: Any = None
        steps: Any = describe_client_quotas.handle(broker.services, request, no_context)
        return sum(1 for _ in steps)

    assert steps_of("nobody") == 4
    assert steps_of("user-7") == 5
