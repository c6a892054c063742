"""klog's controller sends brokers the same requests as Kafka's controller."""

import json

from pyspark_klog.protocol.keys import ApiKey
from tests.support.golden.controller_batches import GOLDEN_FILE, by_broker, decoded, klogs_requests


def test_brokers_get_the_requests_of_kafkas_controller() -> None:
    cases = json.loads(GOLDEN_FILE.read_text(encoding="utf-8"))["cases"]
    kinds = set()
    for case in cases:
        theirs = [decoded(line) for line in case["requests"]]
        ours = [(order.broker_id, order.request) for order in klogs_requests(case["batch"])]
        assert by_broker(ours) == by_broker(theirs), case["batch"]
        kinds |= {request.api_key for _, request in theirs}
    assert kinds == {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
