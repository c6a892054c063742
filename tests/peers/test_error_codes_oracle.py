"""Our table of error codes beside the newest Kafka's."""

import pytest

from pyspark_klog.errors import ErrorCode
from tests.support.peers import KAFKA_4_4
from tests.support.protocol.kafka_definitions import run_java

pytestmark = pytest.mark.peers


def test_codes_names_and_flags_are_kafkas() -> None:
    theirs = [line.split() for line in run_java(KAFKA_4_4, "ErrorCodes.java")]
    ours = [
        [
            str(int(code)),
            code.name,
            str(code.retriable).lower(),
            str(code.refresh_metadata).lower(),
        ]
        for code in ErrorCode
    ]
    assert ours == theirs
