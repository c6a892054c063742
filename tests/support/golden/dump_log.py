"""Make the golden dumps again: python -m tests.support.golden.dump_log [FOLDER].

Kafka 4.3.1 writes a data directory, and its DumpLogSegments prints the content of the files, as
well as of the v0 and v1 logs of tests/golden/records, which Kafka 3.9.1 wrote. Needs Java 17, the
jars of tests/support/peers.py and confluent-kafka. The dumps are committed, so the tests that read
them need neither Java nor jars.
"""

import json
import shutil
import sys
from pathlib import Path

from tests.support.kafka.directories import (
    SMALL_SEGMENTS,
    decoder_option,
    kafkas_dump,
    log_files,
    stopped_directory,
    write_everything,
)
from tests.support.peers import NEWEST_KAFKA, KafkaServer

GOLDEN_DIR = Path(__file__).parents[2] / "golden" / "dump_log"
OUTPUT = "kafka-dump-log.txt"
PARTITIONS = ("plain-0", "tx-0", "__consumer_offsets-0", "__transaction_state-0")
LEGACY = ("java-v0-gzip", "java-v0-none", "java-v1-lz4", "java-v1-none-append-time")
HERE = Path("FOLDER")


def main(folder: Path) -> None:
    with KafkaServer(NEWEST_KAFKA, properties=SMALL_SEGMENTS) as kafka:
        write_everything(kafka.bootstrap_servers)
        written = stopped_directory(kafka)
        for name in PARTITIONS:
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(written / name, folder / name)
    for name in LEGACY:
        golden = json.loads((folder.parent / "records" / f"{name}.json").read_text())
        (folder / name).mkdir(exist_ok=True)
        log = folder / name / f"{golden['records'][0]['offset']:020d}.log"
        log.write_bytes(bytes.fromhex("".join(golden["bytes"])))
    for name in (*PARTITIONS, *LEGACY):
        text = kafkas_dump(NEWEST_KAFKA, log_files(folder / name), *decoder_option(folder / name))
        # The tool also reports a gap before the first record of a log that begins later.
        text = text.partition("Non-consecutive offsets")[0]
        (folder / name / OUTPUT).write_text(text.replace(str(folder / name), str(HERE)))
        print(f"{name}: {text.count(chr(10))} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN_DIR)
