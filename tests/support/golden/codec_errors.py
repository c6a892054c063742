"""Answers of Apache Kafka to compressed batches, whole, odd and damaged (records/codec_cases.py).

`python -m tests.support.golden.codec_errors` asks Kafka 3.9.1 and 4.3.1 again and writes the
golden file.
"""

import json
from collections.abc import Callable
from pathlib import Path

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.produce import PartitionProduceResponse
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic, produce, topic_id_of
from tests.support.records.codec_cases import CodecCase, cases

GOLDEN_FILE = Path(__file__).parents[2] / "golden" / "codec_answers.json"
TOPIC = "codecs"

NEVER_REPEATED = frozenset({int(ErrorCode.UNKNOWN_SERVER_ERROR), int(ErrorCode.INVALID_RECORD)})
"""The errors of these batches, after which no producer sends a batch again."""

OTHER_ERROR = frozenset(
    {
        "v2 gzip: all, then half a stream",
        "v2 gzip: all, then a stream with a wrong checksum",
        "v2 zstd: no payload",
    }
)
"""Cases that klog refuses as Kafka does, with the other error of NEVER_REPEATED: Kafka inflates a
batch in steps, and sees that there are too many records before it sees the damage."""

_DROPPED_BY_KAFKA = ("half of the records", "bytes behind the records")
_DROPPED_LZ4 = (
    *("two streams", "two streams, cut in a record", "all, then an empty stream"),
    *("all, then another record's stream", "all, then half a stream"),
    *("large, two streams", "large, all, then another record's stream"),
)
STRICTER = {
    # Kafka does not look at the checksum. librdkafka does, and its consumer would get no further.
    "v2 lz4: a wrong content checksum": ErrorCode.UNKNOWN_SERVER_ERROR,
    # librdkafka cannot read these either, and no client writes them.
    "v2 zstd: all, then half a stream": ErrorCode.UNKNOWN_SERVER_ERROR,
    "v2 zstd: all, then the head of a stream": ErrorCode.UNKNOWN_SERVER_ERROR,
    "v2 zstd: half a skippable frame behind": ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Cases that Kafka accepts and klog refuses, with klog's error."""
for _magic in (0, 1):
    # Kafka drops messages of these without a word.
    for _codec in ("gzip", "snappy", "lz4"):
        for _name in _DROPPED_BY_KAFKA:
            STRICTER[f"v{_magic} {_codec}: {_name}"] = ErrorCode.INVALID_RECORD
    for _name in _DROPPED_LZ4:
        STRICTER[f"v{_magic} lz4: {_name}"] = ErrorCode.INVALID_RECORD
    STRICTER[f"v{_magic} gzip: two streams, zeros between"] = ErrorCode.INVALID_RECORD
    STRICTER[f"v{_magic} lz4: a wrong content checksum"] = ErrorCode.UNKNOWN_SERVER_ERROR


def golden_error_codes() -> dict[str, int]:
    """Kafka's error code for each case."""
    answers: dict[str, int] = json.loads(GOLDEN_FILE.read_text(encoding="utf-8"))["answers"]
    return answers


def check_error_code(case: CodecCase, code: int, kafkas: int) -> None:
    """AssertionError unless klog may answer ``code`` where Kafka answers ``kafkas``."""
    if case.name in STRICTER:
        assert (kafkas, code) == (0, STRICTER[case.name]), case.name
    elif case.name in OTHER_ERROR:
        assert {kafkas, code} == NEVER_REPEATED, case.name
    else:
        assert code == kafkas, case.name


def error_codes_of(
    client: RawClient, *, with_old_formats: bool = True
) -> dict[str, PartitionProduceResponse]:
    """A broker's answer for each case, in a new topic. Afterwards the topic has the accepted
    batches, in the same order."""
    create_topic(client, TOPIC)
    topic_id_of(client, TOPIC)
    return {
        case.name: produce(client, TOPIC, case.records, version=9 if case.magic == 2 else 2)
        for case in cases()
        if with_old_formats or case.magic == 2
    }


def kafkas_error_codes(
    release: str, also: Callable[[RawClient], None] = lambda _: None
) -> dict[str, int]:
    """Kafka's error code for each case that the release takes; ``also`` gets a client of it."""
    with KafkaServer(release) as server:
        host, port = server.bootstrap_servers.split(":")
        with RawClient((host, int(port))) as client:
            answers = error_codes_of(client, with_old_formats=release == OLDEST_KAFKA)
            also(client)
    return {name: int(answer.error_code) for name, answer in answers.items()}


def main() -> None:
    """Write the golden file."""
    oldest, newest = kafkas_error_codes(OLDEST_KAFKA), kafkas_error_codes(NEWEST_KAFKA)
    assert newest == {name: oldest[name] for name in newest}
    writers = [f"Apache Kafka {OLDEST_KAFKA}", f"Apache Kafka {NEWEST_KAFKA} (format 2)"]
    text = json.dumps({"written_by": writers, "answers": oldest}, indent=0)
    GOLDEN_FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
