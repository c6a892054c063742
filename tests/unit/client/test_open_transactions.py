"""Open transactions of a producer that has gone, found in leaders' DescribeProducers responses."""

import pytest

from pyspark_klog.client.admin.open_transactions import _open_of
from pyspark_klog.protocol.apis.describe_producers import PartitionResponse, ProducerState


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(6, 40), (7, -1), (8, -1)],
    ids=["older", "its own", "of who has the id now"],
)
def test_only_a_transaction_of_an_older_epoch_was_left(epoch: int, expected: int) -> None:
    states = [
        ProducerState(producer_id=3, producer_epoch=epoch, current_txn_start_offset=40),
        ProducerState(producer_id=4, producer_epoch=0, current_txn_start_offset=50),
    ]
    row = PartitionResponse(partition_index=2, active_producers=states)
    assert _open_of(row, 3, 7, "what") == (2, expected)
