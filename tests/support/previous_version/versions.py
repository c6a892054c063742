"""Two versions of klog on one machine: this checkout, and an earlier commit of the same history.

A version runs in child processes that import it from its folder (PYTHONPATH).
"""

import os
import subprocess
import sys
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[3]
PREVIOUS_COMMIT = "4beee2f221a11f3e12de1eeae9e2008b25c39000"
"""The version whose stored data this version must read, and which must read this version's data.

Move the constant forward only when a change of a stored format is decided and documented.
"""
_FOLDERS = ("pyspark_klog", "broker")


class VersionMissing(Exception):
    """The clone has no history that holds the commit."""


@dataclass(frozen=True)
class Version:
    """The code of one version: a folder with `pyspark_klog/` and `broker/klog_broker/`."""

    name: str
    folder: Path

    @property
    def import_path(self) -> str:
        """The PYTHONPATH that child processes import this version with."""
        return os.pathsep.join((str(self.folder), str(self.folder / "broker")))

    @property
    def python(self) -> tuple[str, ...]:
        """The beginning of a command that runs Python with this version."""
        return ("/usr/bin/env", f"PYTHONPATH={self.import_path}", sys.executable)

    def check(self) -> None:
        """Raise AssertionError unless a child process imports this version's packages."""
        code = (
            "import klog_broker, pyspark_klog; print(pyspark_klog.__file__, klog_broker.__file__)"
        )
        done = subprocess.run(
            [*self.python, "-P", "-c", code], capture_output=True, text=True, check=True
        )
        imported = {Path(file).parent for file in done.stdout.split()}
        assert imported == {self.folder / "pyspark_klog", self.folder / "broker" / "klog_broker"}


def this_version() -> Version:
    """The version of this checkout."""
    return Version("this", ROOT)


def previous_version() -> Version:
    """The version of `PREVIOUS_COMMIT`, extracted from git once into .dev, where kernels stay
    compiled.

    :raises VersionMissing: in a clone whose history does not reach back to the commit
    """
    folder = ROOT / ".dev" / "previous" / PREVIOUS_COMMIT[:12]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as made:
            _extract(Path(made) / "version")
            # Another test process may have extracted the same commit meanwhile.
            with suppress(OSError):
                (Path(made) / "version").rename(folder)
    version = Version("previous", folder)
    version.check()
    return version


def _extract(folder: Path) -> None:
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", PREVIOUS_COMMIT, *_FOLDERS]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise VersionMissing("git is not installed") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise VersionMissing(
            f"this clone does not have commit {PREVIOUS_COMMIT[:12]} ({said}); fetch the whole "
            "history with: git fetch --unshallow"
        )
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
