"""``python -m pyspark_klog.warm``: all kernels of the package, and the note that they are kept."""

import os
import subprocess
import sys

from pyspark_klog.records.kernels import kernels_are_cached
from pyspark_klog.warm import KERNEL_MODULES

OF_RECORDS = (
    "batch_contents.check_batch_contents",
    "batch_decoding.decode_batches",
    "batch_encoding.encode_rows",
    "down_conversion.convert_entries",
    "down_conversion.convert_messages",
    "down_conversion.convert_section",
    "messages.measure_messages",
    "messages.write_messages",
    "partition.assign_partitions",
    "partition.sort_by_partition",
    "record_validation.validate_records",
    "rewriting.measure_records",
    "rewriting.write_records",
    "scan.scan_batches",
)
KERNELS = (
    *(f"pyspark_klog.records.kernels.{name}" for name in OF_RECORDS),
    "pyspark_klog.spark.sink.exactly_once.row_hash_kernel.add_row_hashes",
)


def run_warm(**environ: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pyspark_klog.warm"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_every_kernel_has_a_line_and_is_in_the_cache_afterwards() -> None:
    run_warm()
    assert kernels_are_cached()
    lines = run_warm()
    named = sorted(line.split(": ")[0] for line in lines if ": from the cache in " in line)
    assert named == list(KERNELS)
    assert any(line.startswith("kept in ") for line in lines)
    assert lines[-1].startswith(f"{len(KERNELS)} kernels ready in ")


def test_every_module_that_has_kernels_is_warmed() -> None:
    assert set(KERNEL_MODULES) == {name.rpartition(".")[0] for name in KERNELS}


def test_without_compiling_it_says_so() -> None:
    (line,) = run_warm(NUMBA_DISABLE_JIT="1")
    assert line == "kernels run as plain Python, slow but correct: NUMBA_DISABLE_JIT is set"
