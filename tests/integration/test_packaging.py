"""The distribution: what is in wheel and sdist, and that the wheel works away from the checkout."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyspark_klog import __version__
from tests.support.package_environment import make_environment

ROOT = Path(__file__).resolve().parents[2]
# Where each importable package lies in the checkout.
PACKAGES = {"pyspark_klog": "pyspark_klog", "klog_broker": "broker/klog_broker"}

ENVIRONMENT = """
import pkgutil
from importlib.metadata import entry_points

modules = {module.name for module in pkgutil.iter_modules()}
print("modules", *sorted(modules & {"pyspark_klog", "klog_broker"}))
for group in ("console_scripts", "pytest11"):
    print(group, *(entry.value for entry in entry_points(group=group, name="klog")))
"""

LIST = """
from importlib.metadata import distributions

print(*(distribution.metadata["Name"] for distribution in distributions()))
"""

LOOK_UP = """
import pyspark_klog
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
)
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
frame = spark.read.format("klog").options(**options).load()
print("columns", *frame.schema.names)
print("from", pyspark_klog.__file__)
spark.stop()
"""


@dataclass(frozen=True)
class Installed:
    """The wheel in an environment that holds nothing but it and its core dependencies."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *command: str, timeout_s: float = 120) -> str:
        """Runs a program of the environment from an unrelated folder; returns what it printed."""
        program = self.folder / "bin" / command[0]
        done = subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return kept | {
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }


def tracked_files() -> list[Path]:
    """Return the files that git has or would add: all files of the project."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = [Path(name) for name in listed.split("\0") if name]
    return [file for file in files if (ROOT / file).is_file()]


def packaged_files() -> set[str]:
    """The expected content of a wheel: each package's files, under the package's own name."""
    return {
        (package / file.relative_to(folder)).as_posix()
        for package, folder in ((Path(name), Path(lies)) for name, lies in PACKAGES.items())
        for file in tracked_files()
        if file.is_relative_to(folder)
    }


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it; the checkout stays clean."""
    source = tmp_path_factory.mktemp("source")
    for file in tracked_files():
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, source / file)
    folder = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    return next(distributions.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    environment = Installed(tmp_path_factory.mktemp("empty") / "environment")
    make_environment(environment.folder, "-c", str(ROOT / "constraints.txt"), str(wheel))
    yield environment
    shutil.rmtree(environment.folder)


def test_the_wheel_holds_both_packages_whole_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"pyspark_klog-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == packaged_files()
    assert {"pyspark_klog/py.typed", "klog_broker/py.typed"} <= names
    assert {Path(name).name for name in metadata} >= {"METADATA", "entry_points.txt", "LICENSE"}


def test_the_sdist_holds_what_a_build_needs(distributions: Path) -> None:
    name = f"pyspark_klog-{__version__}"
    with tarfile.open(distributions / f"{name}.tar.gz") as archive:
        names = {member.name.removeprefix(f"{name}/") for member in archive.getmembers()}
    sources = {
        file.as_posix()
        for file in tracked_files()
        if any(file.is_relative_to(folder) for folder in PACKAGES.values())
    }
    tops = {"setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE", "PKG-INFO"}
    assert sources | tops <= names


def test_the_metadata_names_core_dependencies_extras_and_entry_points(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
        entries = archive.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()
    required = [
        line.removeprefix("Requires-Dist: ").split(";")[0].strip()
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert sorted(dependency.split(">")[0] for dependency in required) == sorted(
        ["numpy", "numba", "crc32c", "lz4", "zstandard", "cramjam", "zlib-ng", "click"]
    )
    extras = ("arrow", "spark", "zookeeper", "cli", "security", "lake", "lake-delta", "dev")
    for extra in extras:
        assert f"Provides-Extra: {extra}" in metadata
    for extra in ("cli", "spark"):
        assert f'Requires-Dist: rich>=13.7; extra == "{extra}"' in metadata
    assert "klog = klog_broker.cli:main" in entries
    assert "klog = pyspark_klog.testing.plugin" in entries


def test_the_installed_command_says_its_version(installed: Installed) -> None:
    assert __version__ in installed.run("klog", "--version")


def test_the_broker_starts_and_ends_on_core_dependencies_alone(installed: Installed) -> None:
    listed = installed.run("python", "-c", LIST).lower().split()
    assert "pyspark-klog" in listed
    assert not {"pyspark", "pyarrow", "pandas"} & set(listed)
    process = subprocess.Popen(
        [installed.folder / "bin" / "klog", "broker", "--port", "0", "--data", "data"],
        cwd=installed.folder,
        env=installed.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("klog ready on 127.0.0.1:")
        server = ("--bootstrap-server", ready.removeprefix("klog ready on ").strip())
        installed.run("klog", "topics", "create", "events", *server)
        assert "events" in installed.run("klog", "topics", "list", *server)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


def test_spark_finds_the_source_by_its_name(installed: Installed) -> None:
    # pyspark comes from this environment's folder; pyspark_klog must come from the wheel.
    site = next((installed.folder / "lib").glob("python*/site-packages"))
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    script = installed.folder / "look_up.py"
    script.write_text(LOOK_UP, encoding="utf-8")
    lines = installed.run("python", str(script)).splitlines()
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert f"columns {' '.join(columns)}" in lines
    assert f"from {site / 'pyspark_klog' / '__init__.py'}" in lines


def test_the_environment_that_dev_makes_shows_both_packages_to_spark(tmp_path: Path) -> None:
    # Spark looks through the folders of sys.path; the hooks of an editable install are none.
    printed = subprocess.run(
        [sys.executable, "-c", ENVIRONMENT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert printed.splitlines() == [
        "modules klog_broker pyspark_klog",
        "console_scripts klog_broker.cli:main",
        "pytest11 pyspark_klog.testing.plugin",
    ]
