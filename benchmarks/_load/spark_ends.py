"""The source and the sink of a job: a data source and its options."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

import pyspark_klog
from benchmarks._load.spark_ceiling import Ceiling
from benchmarks._load.spark_jobs import SparkJob


class Ends:
    """Sources and sinks of jobs through ``source``, or through nothing for a ceiling job."""

    def __init__(self, session: SparkSession, source: str) -> None:
        session.dataSource.register(Ceiling)
        self._session = session
        self._source = source

    def load(self, job: SparkJob) -> DataFrame:
        """All records of the topic, or of the job's table, as a batch."""
        if job.table:
            return self._load_lake(job)
        source, options = self._reading(job)
        return self._session.read.format(source).options(**options).load()

    def _load_lake(self, job: SparkJob) -> DataFrame:
        options: dict[str, Any] = {**job.options}
        if job.topic:
            options["kafka.bootstrap.servers"] = job.bootstrap_servers
        return pyspark_klog.lake(
            self._session, job.table, topic=job.topic or None, catalog=job.catalog, **options
        )

    def stream(self, job: SparkJob, start: str = "earliest", a_batch: int = 0) -> DataFrame:
        """The topic as a stream, of ``a_batch`` records for each micro-batch if that is not 0."""
        source, options = self._reading(job)
        reader = self._session.readStream.format(source).options(**options)
        reader = reader.option("startingOffsets", start)
        if a_batch:
            reader = reader.option("maxOffsetsPerTrigger", str(a_batch))
        return reader.load()

    def save(self, rows: DataFrame, job: SparkJob, topic: str) -> None:
        """Write rows to a topic, as a batch."""
        source, options = self._writing(job, topic)
        writer: DataFrameWriter = rows.write.format(source)
        writer.options(**options).mode("append").save()

    def into(self, rows: DataFrame, job: SparkJob, topic: str) -> DataStreamWriter:
        """A stream writer of rows to a topic, not started yet."""
        source, options = self._writing(job, topic)
        return rows.writeStream.format(source).options(**options)

    def _reading(self, job: SparkJob) -> tuple[str, dict[str, str]]:
        if job.is_ceiling:
            made = {
                "records": str(job.records),
                "partitions": str(job.partitions),
                "value_bytes": str(job.value_bytes),
            }
            return Ceiling.name(), made
        asked = {"kafka.bootstrap.servers": job.bootstrap_servers, "subscribe": job.topic}
        return self._source, {**asked, **job.options}

    def _writing(self, job: SparkJob, topic: str) -> tuple[str, dict[str, str]]:
        source = Ceiling.name() if job.is_ceiling else self._source
        asked = {"kafka.bootstrap.servers": job.bootstrap_servers, "topic": topic}
        return source, {**asked, **job.sink_options}
