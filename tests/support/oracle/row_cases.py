"""Cases that show the differences which a generated request seldom meets, whatever the seed is."""

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.create_topics import CreatableTopicConfig
from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest
from pyspark_klog.protocol.keys import ApiKey
from tests.support.oracle import state
from tests.support.oracle.cases import fit
from tests.support.oracle.maker import Maker
from tests.support.oracle.records import MadeRecords
from tests.support.oracle.requests import BASES
from tests.support.oracle.steps import Case, Step

FIRST = 1_000_000
"""Number of the first of these cases; the cases of a seed have lower numbers."""

_ZERO_ID = UUID(int=0)


class _RowCase(NamedTuple):
    key: ApiKey
    version: int
    change: Callable[[Any, Maker], None]
    """Changes the sound request."""
    changes: tuple[str, ...] = ()
    """The names of the changed fields, where a row asks for them."""


def row_case(number: int) -> Case:
    """The case with this number, one of `NUMBERS`."""
    key, version, change, changes = _CASES[number - FIRST]
    maker = Maker(number, version, Random(number))
    request = deepcopy(BASES[key](maker))
    change(request, maker)
    fit(request, version)
    return Case(number, request, version, list(changes), maker.topics, maker.setup, maker.probes)


def _fetch_without_topic_id(request: Any, _: Maker) -> None:
    """One partition alone gets the same response from all brokers."""
    topic = request.topics[0]
    topic.topic_id = _ZERO_ID
    topic.partitions = [deepcopy(topic.partitions[0]) for _ in range(2)]
    for number, each in enumerate(topic.partitions):
        each.partition = number


def _fetch_as_no_follower(request: Any, _: Maker) -> None:
    request.replica_state.replica_id = 1


def _largest_timestamp_of_cut(request: Any, _: Maker) -> None:
    request.topics[0].name = "cut"
    request.topics[0].partitions[0].timestamp = -3


def _topic_without_name_and_id(request: Any, _: Maker) -> None:
    request.topics[0].name = None
    request.topics[0].topic_id = _ZERO_ID


def _commit_for_the_empty_group(request: Any, maker: Maker) -> None:
    request.group_id = ""
    maker.probe(DeleteGroupsRequest(groups_names=[""]), 1)


def _open_transaction(maker: Maker) -> None:
    init = state.init_producer(maker.transactional_id, maker.producer)
    adding = state.add_partition(maker.transactional_id, maker.producer, state.SINK)
    maker.setup[:] = [init, adding]


def _end_old_transaction(_: Any, maker: Maker) -> None:
    _open_transaction(maker)


def _init_with_a_wrong_epoch(request: Any, maker: Maker) -> None:
    _open_transaction(maker)
    request.transactional_id = maker.transactional_id
    request.producer_id, request.producer_epoch = maker.producer, 1


def _commit_under_another_transactional_id(request: Any, maker: Maker) -> None:
    """The first commit has added the partition of the group's offsets to the transaction."""
    maker.setup[:] = [state.init_producer(maker.transactional_id, maker.producer)]
    request.member_id, request.generation_id_or_member_epoch = "", -1
    request.topics[0].name = "plain"
    request.topics[0].partitions = request.topics[0].partitions[:1]
    request.topics[0].partitions[0].partition_index = 0
    first = deepcopy(request)
    fit(first, maker.version)
    maker.setup.append(Step(first, maker.version))
    request.transactional_id = maker.own("-other")
    request.topics[0].partitions[0].committed_offset = 9


def _two_faults_of_a_topic(request: Any, _: Maker) -> None:
    topic = request.topics[0]
    topic.assignments = []
    topic.num_partitions, topic.replication_factor = 2, -2
    topic.configs = [CreatableTopicConfig(name="retention.ms", value="x")]


def _loggers(request: Any, _: Maker) -> None:
    resource = request.resources[0]
    resource.resource_type, resource.resource_name = 8, "0"
    resource.configuration_keys = None


def _topic_settings(request: Any, _: Maker) -> None:
    resource = request.resources[0]
    resource.resource_type, resource.resource_name = 2, "plain"
    resource.configuration_keys = None


def _records(kind: str, **fields: Any) -> Callable[[Any, Maker], None]:
    """Produce this record set without a producer id; ``fields`` of the request are changed."""

    def change(request: Any, maker: Maker) -> None:
        maker.setup.clear()
        request.transactional_id = None
        request.acks = -1
        for name, value in fields.items():
            setattr(request, name, value)
        request.topic_data[0].partition_data[0].records = MadeRecords(kind, 0)

    return change


def _wrong_crc_and_epoch(request: Any, maker: Maker) -> None:
    _records("plain")(request, maker)
    maker.own_transaction(request.topic_data[0].name)
    request.transactional_id = maker.transactional_id
    made = MadeRecords("a wrong crc", 0, maker.producer, epoch=-1, is_transactional=True)
    request.topic_data[0].partition_data[0].records = made


_CASES = (
    _RowCase(ApiKey.FETCH, 13, _fetch_without_topic_id),
    _RowCase(ApiKey.FETCH, 17, _fetch_as_no_follower),
    _RowCase(ApiKey.LIST_OFFSETS, 7, _largest_timestamp_of_cut),
    _RowCase(ApiKey.METADATA, 12, _topic_without_name_and_id),
    _RowCase(ApiKey.OFFSET_COMMIT, 0, _commit_for_the_empty_group),
    _RowCase(ApiKey.END_TXN, 5, _end_old_transaction),
    _RowCase(ApiKey.INIT_PRODUCER_ID, 5, _init_with_a_wrong_epoch, ("producer_epoch",)),
    _RowCase(ApiKey.TXN_OFFSET_COMMIT, 5, _commit_under_another_transactional_id),
    _RowCase(ApiKey.CREATE_TOPICS, 7, _two_faults_of_a_topic, ("replication_factor", "value")),
    _RowCase(ApiKey.DESCRIBE_CONFIGS, 0, _topic_settings),
    _RowCase(ApiKey.DESCRIBE_CONFIGS, 4, _loggers),
    _RowCase(ApiKey.PRODUCE, 2, _records("cut off")),
    _RowCase(ApiKey.PRODUCE, 9, _records("codec 5")),
    _RowCase(ApiKey.PRODUCE, 9, _records("16 bytes")),
    _RowCase(ApiKey.PRODUCE, 9, _records("a marker")),
    _RowCase(ApiKey.PRODUCE, 9, _records("magic 3", acks=2)),
    _RowCase(ApiKey.PRODUCE, 9, _wrong_crc_and_epoch),
)

NUMBERS = range(FIRST, FIRST + len(_CASES))
