"""A Spark job over a secured listener, with everything logged that Spark can log.

Run as a process of its own (`python -m tests.support.security.spark_job FOLDER`, options as JSON on
standard input): it reads, writes and streams, then fails with a wrong password, and prints plans
and errors. Spark's event log and the checkpoint lie in FOLDER; a test searches them and the output.
"""

import base64
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

REDACTED = r"(?i)url|secret|password|token|access[.]?key|jaas|keystore\.key"


def token(options: dict[str, str]) -> tuple[str, int]:
    """A token without a signature, as a user's own function gives one."""
    end_s = int(time.time()) + 3_600
    claims = json.dumps({"sub": "alice", "iat": end_s - 3_600, "exp": end_s})
    parts = (base64.urlsafe_b64encode(each.encode()) for each in ('{"alg":"none"}', claims))
    return ".".join(part.decode().rstrip("=") for part in parts) + ".", end_s * 1_000


def main() -> None:
    """The job."""
    folder = Path(sys.argv[1])
    given: dict[str, Any] = json.load(sys.stdin)
    options: dict[str, str] = given["options"]
    topic: str = given["topic"]
    confs = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder / "events"),
        "spark.eventLog.compress": "false",  # so that it can be searched
    }
    (folder / "events").mkdir()
    arguments = " ".join(f"--conf {name}={value}" for name, value in confs.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{arguments} pyspark-shell"
    # Py4j's own DEBUG is every call of the user's driver, with its arguments.
    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger("py4j").setLevel(logging.INFO)

    from tests.support.spark.session import spark_session

    spark = spark_session()
    spark.sparkContext.setLogLevel("DEBUG")
    source = {**options, "subscribe": topic}
    frame = spark.read.format("klog").options(**source).load()
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.where("partition = 0").explain(mode)
    print("read", frame.count())
    rows = spark.range(5).selectExpr("string(id) as value")
    rows.explain("extended")
    sink = {**options, "topic": topic}
    rows.write.format("klog").options(**sink).mode("append").save()
    # In this mode Spark itself puts a sink's options into plans; docs/security.md has the pattern.
    spark.conf.set("spark.sql.ui.explainMode", "extended")
    spark.conf.set("spark.sql.redaction.options.regex", REDACTED)
    rows.write.format("klog").options(**sink).mode("append").save()
    for name in ("spark.sql.ui.explainMode", "spark.sql.redaction.options.regex"):
        spark.conf.unset(name)
    stream = spark.readStream.format("klog").options(**source, startingOffsets="earliest").load()
    query = (
        stream.selectExpr("value")
        .writeStream.format("klog")
        .options(**options, topic=given["copy"], checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    query.explain(True)
    print("streamed", query.lastProgress)

    wrong = {**options, "kafka.sasl.jaas.config": given["wrong"]}

    def fails(what: str, call: Callable[[], object]) -> None:
        try:
            call()
            print(what, "succeeded")
        except Exception as error:
            print(what, "failed:", repr(error), error)
            traceback.print_exc()

    def stream_with_a_wrong_password() -> None:
        wrong_stream = spark.readStream.format("klog").options(**{**source, **wrong}).load()
        running = wrong_stream.writeStream.format("noop").start()
        running.awaitTermination(120)

    malformed = {**source, "kafka.sasl.jaas.config": given["wrong"].rstrip(";")}
    reader = spark.read.format("klog")
    fails("malformed", lambda: reader.options(**malformed).load())
    fails("source", lambda: spark.read.format("klog").options(**{**source, **wrong}).load().count())
    fails("stream", stream_with_a_wrong_password)
    writer = rows.write.format("klog").options(**{**sink, **wrong})
    fails("sink", lambda: writer.mode("append").save())
    spark.stop()


if __name__ == "__main__":
    main()
