"""The load generator and the Spark driver, as the benchmarks use them: children that run jobs."""

import hashlib
import shutil
from pathlib import Path
from typing import Literal

from benchmarks._load import spark_jobs
from benchmarks._load.jobs import Job, LoadFailed, Measured, write_job
from benchmarks._load.pipe import Child
from benchmarks._load.spark_jobs import SparkJob, SparkMeasured

_FOLDER = Path(__file__).parent
# A job's own deadline comes first; the very first job may compile for a while.
_GRACE_S = 90.0
_SPARK_TIMEOUT_S = 300.0


class Generator(Child):
    """A process that generates load, one job at a time."""

    def __init__(self) -> None:
        environment = {"NUMBA_CACHE_DIR": str(_cache_directory())}
        super().__init__("benchmarks._load.child", environment=environment)

    def run(self, job: Job) -> Measured:
        """Run a job and return its measurement; LoadFailed if it did not finish."""
        try:
            return Measured(**self.send_line(write_job(job), job.timeout_s + _GRACE_S))
        except LoadFailed as error:
            raise LoadFailed(f"{type(job).__name__} on {job.target.topic}: {error}") from None


class SparkDriver(Child):
    """A Spark driver that runs one job at a time.

    ``python`` is another interpreter than this one, with another Spark.
    """

    def __init__(
        self, source: Literal["klog", "kafka"], jars: list[Path], python: Path | None = None
    ) -> None:
        self._source = source
        arguments = [source, *map(str, jars)]
        super().__init__("benchmarks._load.spark_child", arguments, python=python)

    def run(self, job: SparkJob) -> SparkMeasured:
        """Run a job; LoadFailed if it failed, or found another number of records."""
        what = f"format {self._source}, {job.kind} on {job.topic}"
        try:
            found = self.send_line(spark_jobs.write_job(job), _SPARK_TIMEOUT_S)
        except LoadFailed as error:
            raise LoadFailed(f"{what}: {error}") from None
        measured = SparkMeasured(**found)
        if measured.records != job.records:
            raise LoadFailed(f"{what}: {measured.records} records, expected {job.records}")
        return measured


def _cache_directory() -> Path:
    """The folder of compiled generators, named by their sources.

    numba's own cache would look at one source file only, but a generator has several.
    """
    digest = hashlib.sha256()
    for source in sorted(_FOLDER.glob("*.py")):
        digest.update(source.read_bytes())
    kept = _FOLDER / "__pycache__"
    name = f"kernels-{digest.hexdigest()[:16]}"
    for outdated in kept.glob("kernels-*"):
        if outdated.name != name:
            shutil.rmtree(outdated, ignore_errors=True)
    return kept / name
