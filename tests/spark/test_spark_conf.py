"""spark-conf/: Spark takes both files, with every line that waits for its user in force, too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._spark_conf import settings_in
from tests.soak.copies import read_all
from tests.support.repo.documents import ROOT
from tests.support.spark.home import compiled_home
from tests.support.spark.topics import Topics

CONF = ROOT / "spark-conf"

JOB = """
import json, sys
import pyspark_klog
from pyspark.sql import SparkSession

servers, topic, target, copy, checkpoint, names = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").appName("conf")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "kafka.schema.registry.url": "http://registry"}
rows = spark.readStream.format("klog").options(**options).option("subscribe", topic)
counts = rows.option("startingOffsets", "earliest").load().groupBy("value").count()
writer = counts.selectExpr("value AS key", "string(count) AS value").writeStream.format("klog")
writer = writer.options(**options).option("topic", target).outputMode("complete")
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
again = spark.readStream.format("klog").options(**options).option("subscribe", topic)
again = again.options(startingOffsets="earliest", maxOffsetsPerTrigger="1").load()
written = pyspark_klog.batch_writer(**options, topic=copy)
query = again.writeStream.foreachBatch(written).option("checkpointLocation", checkpoint + "-2")
query.trigger(availableNow=True).start().awaitTermination()
assert spark.read.format("klog").options(**options).option("subscribe", topic).load().count() == 3
log = spark._jvm.org.slf4j.LoggerFactory.getLogger
log("org.example.Mine").warn("a warning of the job's own")
log("org.example.Mine").info("not so loud")
print(json.dumps({name: spark.conf.get(name, None) for name in json.loads(names)}), flush=True)
spark.stop()
"""


@pytest.mark.timeout(900)
def test_spark_takes_every_line_and_logs_no_noise(topics: Topics, tmp_path: Path) -> None:
    text = (CONF / "spark-defaults.conf").read_text(encoding="utf-8")
    settings = settings_in(text)
    assert settings
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(text.replace("\n#spark.", "\nspark."), "utf-8")
    log4j = (CONF / "log4j2.properties").read_text(encoding="utf-8")
    (conf / "log4j2.properties").write_text(log4j, encoding="utf-8")
    source, target, copy = topics.create(2), topics.create(), topics.create()
    topics.put_numbers(source, [1, 1, 2])
    arguments = [topics.servers, source, target, copy, str(tmp_path / "checkpoint")]
    done = subprocess.run(
        [sys.executable, "-c", JOB, *arguments, json.dumps(list(settings))],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "broker")]),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_HOME": str(compiled_home()),  # only quicker
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert json.loads(done.stdout.splitlines()[-1]) == settings
    # librdkafka reads the results, because this process needs no Spark for anything else.
    assert sorted(each.number for each in read_all(topics.servers, target).records) == [1, 2]
    assert len(read_all(topics.servers, copy).records) == 3
    ignored = "setting=kafka.schema.registry.url is accepted without effect"
    readers_and_writers = ("stream", "sink", "stream of foreachBatch", "batch_writer", "batch")
    assert done.stderr.count(ignored) == len(readers_and_writers), "once each, not once a task"
    assert "a warning of the job's own" in done.stderr
    assert "not so loud" not in done.stderr
    # A busy machine may have true warnings to log; these are never.
    noise = ["NativeCodeLoader", "adaptive", "AQE", "log level", "log4j profile", "[Stage"]
    assert [text for text in noise if text in done.stderr] == []
