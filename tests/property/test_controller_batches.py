"""A controller's requests: properties of any batch, and of any order of delivery."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.controller.zookeeper.request_batch import BrokerRequest
from klog_broker.controller.zookeeper.request_queues import RequestQueues
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.stop_replica import StopReplicaRequest
from pyspark_klog.protocol.codec import decode_message, encode_message
from pyspark_klog.protocol.keys import ApiKey
from tests.support.golden.controller_batches import klogs_requests, scenario

ORDER = [ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA]


@given(st.integers(0, 2**32))
def test_a_broker_gets_at_most_one_request_of_a_kind_and_only_for_its_broker_epoch(
    seed: int,
) -> None:
    lines = scenario(Random(seed))
    epochs = {
        int(words[1]): int(words[2]) for words in map(str.split, lines) if words[0] == "broker"
    }
    by_broker: dict[int, list[ApiKey]] = {}
    for order in klogs_requests(lines):
        assert order.broker_epoch == epochs[order.broker_id] == order.request.broker_epoch
        by_broker.setdefault(order.broker_id, []).append(order.request.api_key)
        version = order.request.max_version
        encoded = encode_message(order.request, version)
        assert decode_message(type(order.request), version, encoded)[0] == order.request
    for kinds in by_broker.values():
        assert kinds == [kind for kind in ORDER if kind in kinds]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(("put", "send", "answer", "lose", "restart")), max_size=60))
def test_a_broker_gets_all_its_requests_in_order(course: list[str]) -> None:
    queues, broker_id, epoch = RequestQueues(), BrokerId(1), 1
    queues.add_broker(broker_id, epoch)
    put: list[BrokerRequest] = []
    answered: list[BrokerRequest] = []
    on_its_way: BrokerRequest | None = None
    for event in course:
        if event == "put":
            put.append(BrokerRequest(broker_id, epoch, StopReplicaRequest()))
            ready = queues.put(put[-1:], 1_000)
            assert (ready == [broker_id]) == (on_its_way is None)
        elif event == "send":
            sent = queues.next_request(broker_id)
            waiting = put[len(answered) :]
            expected = waiting[0] if waiting and on_its_way is None else None
            assert sent is expected
            on_its_way = sent or on_its_way
        elif event == "restart":
            epoch += 1
            queues.add_broker(broker_id, epoch)
            put, answered, on_its_way = [], [], None
        elif on_its_way is not None:
            if event == "answer":
                queues.remove_answered(on_its_way)
                answered.append(on_its_way)
            else:
                queues.requeue(on_its_way)
            on_its_way = None
