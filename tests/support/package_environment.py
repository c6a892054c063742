"""Environments with packages that klog's own lacks: made once, from wheels of the package index.

The environments stay below ``.dev/old-clients``, where later runs find them.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".dev" / "old-clients"
INSTALL_TIMEOUT_S = 240


def python_with(requirement: str, *further: str) -> Path:
    """Return the Python of an environment with these packages; make it unless it exists."""
    requirements = [requirement, *further]
    made_by = "\n".join([sys.version, sys.prefix, *requirements])
    key = hashlib.sha256(made_by.encode()).hexdigest()[:12]
    version = ".".join(map(str, sys.version_info[:3]))
    folder = CACHE / f"{version}-{requirement.replace('==', '-')}-{key}"
    python = folder / "bin" / "python"
    stamp = folder / "complete"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make_environment(folder, "--only-binary=:all:", *requirements)
            stamp.write_text(made_by, encoding="utf-8")
    return python


def make_environment(folder: Path, *requirements: str) -> None:
    """Create an environment with these packages, and without a pip of its own.

    ``requirements`` may begin with options of ``pip install``. A pip in the environment would cost
    half of the time, and compiling modules that nobody imports most of the rest.
    """
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    install = f"--python {folder} install --quiet --disable-pip-version-check --no-compile"
    _run([sys.executable, "-m", "pip", *install.split(), *requirements])


def _run(command: list[str]) -> None:
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, f"{' '.join(command)}: {ended.stdout}{ended.stderr}"
