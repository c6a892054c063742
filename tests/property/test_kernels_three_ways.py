"""Kernels against iterators, on good and damaged bytes: compiled, plain, and with bounds checks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_klog.records.kernels import kernels_compiled, not_compiled_reason
from tests.support.log import rewriting_cases
from tests.support.records import down_cases, kernel_cases
from tests.support.records.kernel_cases import run_seeds
from tests.support.spark import row_hash_cases

ROOT = Path(__file__).parents[2]
CASES = {
    "kernel_cases": (kernel_cases, 120),
    "down_cases": (down_cases, 400),
    "rewriting_cases": (rewriting_cases, 150),
    "row_hash_cases": (row_hash_cases, 200),
}


@pytest.fixture(scope="module", params=CASES)
def digest(request: pytest.FixtureRequest) -> tuple[str, int, str]:
    """Cases, how many, and what this process's form makes of them; that iterators agree is
    asserted there."""
    module, seeds = CASES[request.param]
    return module.__name__, seeds, module.run_seeds(range(seeds))


def test_here_they_are_compiled() -> None:
    assert kernels_compiled(), not_compiled_reason()
    assert not_compiled_reason() == ""


@pytest.mark.parametrize(
    "form",
    [{"NUMBA_DISABLE_JIT": "1"}, {"NUMBA_BOUNDSCHECK": "1"}],
    ids=["plain", "checked"],
)
def test_another_form_gives_the_same(form: dict[str, str], digest: tuple[str, int, str]) -> None:
    assert_same_in(form, digest)


def test_a_processor_without_a_crc_instruction_gives_the_same() -> None:
    """Without the instruction all kernels share one CRC table, so these cases are enough."""
    module, seeds = CASES["kernel_cases"]
    expected = module.run_seeds(range(seeds))
    assert_same_in({"NUMBA_CPU_NAME": "generic"}, (module.__name__, seeds, expected))


def assert_same_in(form: dict[str, str], digest: tuple[str, int, str]) -> None:
    module, seeds, expected = digest
    done = subprocess.run(
        [sys.executable, "-m", module, str(seeds)],
        cwd=ROOT,
        env={**os.environ, **form},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr[-2000:]) == (expected, "")


def test_without_numba_the_kernels_run_as_python() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from pyspark_klog.records.kernels import kernels_compiled\n"
        "from pyspark_klog.records.kernels import not_compiled_reason as reason\n"
        "from tests.support.records.kernel_cases import run_seeds\n"
        "assert not kernels_compiled()\n"
        "assert reason().startswith('numba cannot be imported'), reason()\n"
        "print(run_seeds(range(20)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr[-2000:]) == (run_seeds(range(20)), "")


def test_importing_the_packages_loads_no_numba() -> None:
    code = (
        "import sys, pyspark_klog, pyspark_klog.records, pyspark_klog.records.kernels\n"
        "import pyspark_klog.records.partitioner, pyspark_klog.records.record_sets\n"
        "from pyspark_klog.records.kernels import kernels_are_cached\n"
        "kernels_are_cached()\n"
        "print([name for name in ('numba', 'llvmlite', 'pyarrow') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
