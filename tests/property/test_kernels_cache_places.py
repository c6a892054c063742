"""The kernel cache as a process finds it, in a copy of the package: unwritable places, a read-only
package that was warmed before, and a zip file."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pyspark_klog
from pyspark_klog.records.kernels.cache import CACHE_NAME

# One kernel is enough to see where its code goes, and klog's own take longer to compile.
SMALL_KERNEL = (
    "from pyspark_klog.records.kernels.jit import Array, kernel\n"
    "from pyspark_klog.records.kernels.memory import byte_at\n"
    "@kernel('in8', 'i64')\n"
    "def read_byte(buf: Array, position: int) -> int:\n"
    "    return byte_at(buf, position)\n"
)
LOAD = (
    "from pyspark_klog.records.kernels import small, jit, cache\n"
    "import sys, numba\n"
    "print(cache.cache_directory(small.__file__))\n"
    "print([kernel.from_cache for kernel in jit.loaded_kernels], numba.config.CACHE_DIR)\n"
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package without any cache, and with the small kernel."""
    source = Path(pyspark_klog.__file__).parent
    target = tmp_path / "site" / "pyspark_klog"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "records" / "kernels" / "small.py").write_text(SMALL_KERNEL)
    return target


def load(path: Path, tmp_path: Path, **environ: str) -> list[str]:
    """Load the kernels of the package in ``path``; the directory and whether the cache had them."""
    (tmp_path / "temp").mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))}
    done = subprocess.run(
        [sys.executable, "-B", "-c", LOAD],
        cwd=tmp_path,
        env={
            **kept,
            "PYTHONPATH": str(path),
            "HOME": str(tmp_path / "home"),
            "TMPDIR": str(tmp_path / "temp"),
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def forbid_package(package: Path) -> None:
    """Make the folder in the package unwritable for every user, even root: it is a file."""
    (package / "records" / "kernels" / "__pycache__").write_text("")


def test_a_user_who_can_write_neither_package_nor_cache(package: Path, tmp_path: Path) -> None:
    forbid_package(package)
    (tmp_path / "home").write_text("no folder")
    directory, found = load(package.parent, tmp_path)
    assert Path(directory).parent == tmp_path / "temp" / f"{CACHE_NAME}-{os.getuid()}"
    assert found == "[False] "
    assert load(package.parent, tmp_path)[1] == "[True] "


def test_a_user_who_can_write_nowhere_compiles_each_time(package: Path, tmp_path: Path) -> None:
    forbid_package(package)
    (tmp_path / "home").write_text("no folder")
    (tmp_path / "temp").mkdir()
    (tmp_path / "temp" / f"{CACHE_NAME}-{os.getuid()}").write_text("no folder")
    assert load(package.parent, tmp_path) == ["None", "[False] "]


def test_numbas_own_setting_comes_first_and_is_put_back(package: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    directory, found = load(package.parent, tmp_path, NUMBA_CACHE_DIR=str(chosen))
    assert Path(directory).parent == chosen / CACHE_NAME
    assert found == f"[False] {chosen}"
    (tmp_path / "file").write_text("")
    unwritable = str(tmp_path / "file" / "x")
    directory, _ = load(package.parent, tmp_path, NUMBA_CACHE_DIR=unwritable)
    assert Path(directory).parent == package / "records/kernels/__pycache__" / CACHE_NAME


def test_a_change_in_any_kernel_source_compiles_again(package: Path, tmp_path: Path) -> None:
    first = load(package.parent, tmp_path)
    assert load(package.parent, tmp_path)[1] == "[True] "
    # numba by itself would keep a kernel whose helper, in another file, has changed.
    helper = package / "records" / "kernels" / "memory.py"
    helper.write_text(helper.read_text() + "\n# changed\n")
    second = load(package.parent, tmp_path)
    assert second[1] == "[False] "
    assert second[0] != first[0]
    assert not Path(first[0]).exists()


def test_a_package_in_a_zip_file(package: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "klog.zip", "w") as archive:
        for file in package.rglob("*.py"):
            archive.write(file, file.relative_to(package.parent))
    directory, found = load(tmp_path / "klog.zip", tmp_path)
    assert Path(directory).parent == tmp_path / "home" / ".cache" / CACHE_NAME
    assert found == "[False] "
    assert load(tmp_path / "klog.zip", tmp_path)[1] == "[True] "
