"""Kernels against iterators, on good and damaged bytes: compiled, plain, and with bounds checks."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from pyspark_klog.records.kernels import kernels_compiled, not_compiled_reason
from tests.support.compaction import cases as compaction_cases
from tests.support.log import rewriting_cases
from tests.support.records import down_cases, kernel_cases, scan_cases
from tests.support.records.kernel_cases import run_seeds
from tests.support.spark import row_hash_cases

ROOT = Path(__file__).parents[2]
CASES = {
    "kernel_cases": (kernel_cases, 120),
    "down_cases": (down_cases, 400),
    "rewriting_cases": (rewriting_cases, 150),
    "row_hash_cases": (row_hash_cases, 200),
    "compaction_cases": (compaction_cases, 250),
}
FORMS = {
    "plain": {"NUMBA_DISABLE_JIT": "1"},
    # The process runs few cases: compiling takes longer than running, so LLVM optimizes little.
    "checked": {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1"},
}


def test_here_they_are_compiled() -> None:
    assert kernels_compiled(), not_compiled_reason()
    assert not_compiled_reason() == ""


@cache
def digest(cases: str) -> str:
    """Return what this process's form makes of the cases, after a comparison with the iterators."""
    module, seeds = CASES[cases]
    found: str = module.run_seeds(range(seeds))
    return found


@cache
def other_form(form: str) -> tuple[dict[str, str], str]:
    """Return the digest of each module of cases in another form, and what the process complains."""
    arguments = [f"{module.__name__}={seeds}" for module, seeds in CASES.values()]
    return digests(arguments, FORMS[form])


def digests(arguments: list[str], environ: dict[str, str]) -> tuple[dict[str, str], str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.records.kernel_forms", *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return dict(line.split() for line in done.stdout.splitlines()), done.stderr[-2000:]


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("form", FORMS)
def test_another_form_gives_the_same(form: str, cases: str) -> None:
    found, complaints = other_form(form)
    assert (found.get(CASES[cases][0].__name__), complaints) == (digest(cases), "")


def test_a_processor_without_a_crc_instruction_gives_the_same() -> None:
    """Without the instruction all kernels share one CRC table, so the scan's cases are enough."""
    name = scan_cases.__name__
    found = digests([f"{name}=60"], {"NUMBA_CPU_NAME": "generic"})
    assert found == ({name: scan_cases.run_seeds(range(60))}, "")


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
