"""Airflow runs the DAGs of docs/airflow.md, and its operators for Kafka, on klog's broker."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pyspark_klog import testing
from tests.support.eventually import eventually
from tests.support.kafka.killed_programs import Program
from tests.support.package_environment import python_with
from tests.support.repo.documents import ROOT, code_block
from tests.support.spark.home import spark_home
from tests.support.spark.topics import Topics

pytestmark = pytest.mark.timeout(900)

AIRFLOW = "apache-airflow==3.3.2"
PROVIDERS = (
    "apache-airflow-providers-apache-spark==6.3.4",
    "apache-airflow-providers-apache-kafka==2.1.0",
)
PAGE = (ROOT / "docs" / "airflow.md").read_text(encoding="utf-8")
HOUR_MS = 1_699_999_200_000  # 2023-11-14 22:00 UTC
NEXT_HOUR_MS = HOUR_MS + 3_600_000
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

OPERATORS = """
from airflow.providers.apache.kafka.operators.consume import ConsumeFromTopicOperator
from airflow.providers.apache.kafka.operators.produce import ProduceToTopicOperator
from airflow.providers.apache.kafka.sensors.kafka import AwaitMessageSensor
from airflow.sdk import DAG


def three_records():
    return [(b"key", b"%d" % number) for number in range(3)]


def is_last(message):
    return message.value() == b"2" and "found"


def note(message):
    with open("FOLDER/consumed", "ab") as file:
        file.write(message.value())


with DAG("operators", schedule=None):
    (
        ProduceToTopicOperator(
            task_id="produce", topic="operators", producer_function=three_records
        )
        >> AwaitMessageSensor(
            task_id="wait",
            topics=["operators"],
            apply_function="operators.is_last",
            kafka_config_id="kafka_waiting",
            poll_interval=0.1,
        )
        >> ConsumeFromTopicOperator(
            task_id="consume",
            topics=["operators"],
            apply_function=note,
            max_messages=3,
            max_batch_size=3,
        )
    )
"""


class Airflow:
    """A home of Airflow whose DAGs submit jobs to a Spark in the process of `spark-submit`.

    Each job's `spark-submit` fails once after the job has ended, so that Airflow repeats the task.
    """

    def __init__(self, folder: Path, topics: Topics) -> None:
        self.folder = folder
        self.topics = topics
        # The package index has no wheel of pyspark-client, which Spark's provider requires.
        self.bin = python_with(AIRFLOW, *PROVIDERS, "--no-binary=pyspark-client").parent
        for name in ("dags", "jobs", "bin"):
            (folder / name).mkdir()
        spark = spark_home(folder / "spark")
        self.environment = {
            "HOME": str(folder),
            "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
            "PATH": os.pathsep.join([str(folder / "bin"), str(self.bin), os.environ["PATH"]]),
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "0",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PYTHONPATH": str(folder / "dags"),
        } | self._connections()
        submit = folder / "bin" / "spark-submit"
        submit.write_text(
            "#!/bin/sh -e\n"
            f"{shlex.quote(str(spark / 'bin' / 'spark-submit'))} "
            f'--conf "spark.driver.extraJavaOptions={_JAVA}" --conf spark.ui.enabled=false "$@"\n'
            f'[ -e "{folder}/failed" ] || {{ touch "{folder}/failed"; exit 1; }}\n',
            encoding="utf-8",
        )
        submit.chmod(0o755)

    def _connections(self) -> dict[str, str]:
        """The connections of the page, and one with another group."""
        exports = dict(re.findall(r"^export (\w+)='(.*)'$", PAGE, re.MULTILINE))
        spark, kafka = exports["AIRFLOW_CONN_SPARK_DEFAULT"], exports["AIRFLOW_CONN_KAFKA_DEFAULT"]
        assert "spark://master:7077" in spark
        assert "broker:9092" in kafka
        early = '"group.id": "airflow", "auto.offset.reset": "earliest"'
        kafka = kafka.replace("broker:9092", self.topics.servers)
        kafka = kafka.replace('"group.id": "airflow"', early)
        return {
            "AIRFLOW_CONN_SPARK_DEFAULT": spark.replace("spark://master:7077", "local[2]"),
            "AIRFLOW_CONN_KAFKA_DEFAULT": kafka,
            "AIRFLOW_CONN_KAFKA_WAITING": kafka.replace('"airflow"', '"waiting"'),
        }

    def add(self, path: str) -> None:
        """Add the page's DAG or job ``path``, with the paths and the broker of this test."""
        code = code_block(PAGE, "python", f"# {path}\n")
        code = code.replace("/opt/jobs", str(self.folder / "jobs"))
        code = code.replace("/opt/klog/bin/python", sys.executable)
        code = code.replace("/lake/", f"{self.folder}/lake/")
        code = code.replace("broker:9092", self.topics.servers)
        code = code.replace("poke_interval=60", "poke_interval=1")
        (self.folder / path).write_text(code, encoding="utf-8")

    def run(self, *arguments: str) -> None:
        """Run a command of Airflow to its end."""
        command = [str(self.bin / "airflow"), *arguments]
        ended = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert ended.returncode == 0, (ended.stdout + ended.stderr)[-5000:]

    def begin(self, *arguments: str) -> Program:
        """Begin a command of Airflow."""
        command = [str(self.bin / "airflow"), *arguments]
        return Program(command, self.folder / "output", self.environment)

    def fail_next_job(self) -> None:
        """Let the next `spark-submit` fail after its job."""
        (self.folder / "failed").unlink(missing_ok=True)

    def values(self, folder: str) -> list[bytes]:
        """The values of the records in files of Parquet."""
        files = sorted((self.folder / "lake" / folder).rglob("*.parquet"))
        tables = [pq.ParquetFile(file).read(["value"]) for file in files]
        return sorted(value for table in tables for value in table["value"].to_pylist())


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with testing.Broker() as broker:
        made = Topics(broker.bootstrap_servers)
        yield made
        made.close()


@pytest.fixture(scope="module")
def airflow(topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    made = Airflow(tmp_path_factory.mktemp("airflow"), topics)
    made.run("db", "migrate")
    return made


@pytest.fixture(autouse=True)
def orders(topics: Topics) -> Iterator[None]:
    topics.create(2, "orders")
    yield
    topics.delete("orders")


def test_the_page_names_the_releases_that_run() -> None:
    assert {each.split("==")[1] for each in (AIRFLOW, *PROVIDERS)} <= set(
        re.findall(r"\d[.\d]+\d", PAGE)
    )


def test_an_hour_is_read_once_it_is_written(airflow: Airflow, topics: Topics) -> None:
    def put(at_ms: int, value: bytes, partition: int) -> None:
        topics.put("orders", [(None, value)], partition, at_ms=at_ms)

    for partition in (0, 1):
        put(HOUR_MS - 1, b"before", partition)
        put(HOUR_MS, b"first-%d" % partition, partition)
        put(NEXT_HOUR_MS - 1, b"last-%d" % partition, partition)
    put(NEXT_HOUR_MS, b"next", 0)
    for path in ("jobs/orders_hour.py", "dags/orders_hour.py"):
        airflow.add(path)
    with airflow.begin("dags", "test", "orders_hour", "2023-11-14T23:00:00") as program:

        def waits() -> bool:
            program.expect_running()
            return any("reschedul" in line.lower() for line in program.lines())

        eventually(waits, deadline_s=200, what="the sensor waiting for partition 1")
        assert not (airflow.folder / "lake").exists()
        put(NEXT_HOUR_MS, b"next", 1)
        assert program.wait(400) == 0, program.lines()[-50:]
    assert (airflow.folder / "failed").exists()
    written = [b"first-0", b"first-1", b"last-0", b"last-1"]
    assert airflow.values("orders-by-hour/hour=2023-11-14T22") == written


def test_each_run_reads_new_records_once(airflow: Airflow, topics: Topics) -> None:
    for path in ("jobs/orders_stream.py", "dags/orders_stream.py"):
        airflow.add(path)
    for numbers in (range(5), range(5, 8)):
        topics.put_numbers("orders", numbers, numbers[0] % 2)
        airflow.fail_next_job()
        airflow.run("dags", "test", "orders_stream")
        assert (airflow.folder / "failed").exists()
        assert airflow.values("orders") == sorted(b"%d" % each for each in range(numbers[-1] + 1))


def test_operators_for_kafka_work_on_klog(airflow: Airflow, topics: Topics) -> None:
    topics.create(1, "operators")
    text = OPERATORS.replace("FOLDER", str(airflow.folder))
    (airflow.folder / "dags" / "operators.py").write_text(text, encoding="utf-8")
    airflow.run("dags", "test", "operators")
    assert (airflow.folder / "consumed").read_bytes() == b"012"
