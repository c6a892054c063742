"""Every version of the protocol has bytes that another implementation wrote."""

import json
from pathlib import Path
from random import Random

import pytest

from pyspark_klog.protocol.codec import encode_message
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.registry import API_KEYS, find_api
from tests.support.protocol.samples import sample_message

GOLDEN = Path(__file__).parents[1] / "golden" / "protocol"

# No package installed here writes these versions any more; their bytes equal those of version 1.
AS_VERSION_1 = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)


def test_each_version_of_each_message_has_golden_bytes() -> None:
    golden = {
        (frame["key"], frame["version"], frame["kind"])
        for file in GOLDEN.glob("*.json")
        for frame in json.loads(file.read_text(encoding="utf-8"))["frames"]
    }
    missing = [
        f"{find_api(key).name} {version} ({kind})"
        for key in API_KEYS
        for version in range(find_api(key).min_version, find_api(key).max_version + 1)
        for kind in ("request", "response")
        if (key, version, kind) not in golden and not (version == 0 and key in AS_VERSION_1)
    ]
    assert not missing, "let another implementation write them: tests/support/golden/protocol.py"


@pytest.mark.parametrize("key", AS_VERSION_1)
def test_a_version_without_golden_bytes_has_those_of_the_next(key: ApiKey) -> None:
    for cls in (find_api(key).request, find_api(key).response):
        for seed in range(20):
            message = sample_message(cls, 0, Random(seed))
            assert encode_message(message, 0) == encode_message(message, 1)
