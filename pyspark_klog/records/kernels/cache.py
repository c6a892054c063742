"""Chooses and fills the directory that stores compiled kernels. This module does not need numba.

Machine code from the kernel cache is loaded without a check. So a directory in a shared temporary
folder is used only if it belongs to the user and nobody else can write to it.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import NamedTuple

CACHE_NAME = "klog-kernels"
# Fields of /proc/cpuinfo that distinguish processors, on x86 and on ARM: compiled kernels serve
# only the kind of processor that they were compiled for.
_PROCESSOR_FIELDS = {"vendor_id", "cpu family", "model", "flags"}
_PROCESSOR_FIELDS |= {"CPU implementer", "CPU part", "Features"}


class CacheCandidate(NamedTuple):
    """A directory that may become the cache of compiled kernels.

    A ``private`` directory is used only if it belongs to the user and nobody else can write to it.
    """

    path: Path
    private: bool


def cache_candidates(
    package_dir: Path,
    environ: Mapping[str, str],
    home: Path | None,
    temp_dir: Path,
    uid: int | None,
) -> list[CacheCandidate]:
    """Return the directories to try as cache of compiled kernels, in this order: NUMBA_CACHE_DIR,
    the package's ``__pycache__``, the user's cache folder, the temporary folder.

    ``uid`` is None on a system without user ids (Windows), where the temporary folder is private.
    """
    candidates = []
    if environ.get("NUMBA_CACHE_DIR"):
        candidates.append(CacheCandidate(Path(environ["NUMBA_CACHE_DIR"]) / CACHE_NAME, False))
    candidates.append(CacheCandidate(package_dir / "__pycache__" / CACHE_NAME, False))
    if environ.get("XDG_CACHE_HOME"):
        candidates.append(CacheCandidate(Path(environ["XDG_CACHE_HOME"]) / CACHE_NAME, False))
    elif home is not None:
        parts = ("Library", "Caches") if sys.platform == "darwin" else (".cache",)
        candidates.append(CacheCandidate(home.joinpath(*parts, CACHE_NAME), False))
    name = CACHE_NAME if uid is None else f"{CACHE_NAME}-{uid}"
    candidates.append(CacheCandidate(temp_dir / name, uid is not None))
    return candidates


def find_cache_directory(
    candidates: Iterable[CacheCandidate], fingerprint: str, uid: int | None
) -> Path | None:
    """Create a folder named ``fingerprint`` in the first usable candidate, and return its path.

    A candidate is usable if it is writable and, if it is ``private``, nobody else can write to it.
    Returns None if no candidate is usable.
    """
    for candidate in candidates:
        try:
            if candidate.private and not _make_private(candidate.path, uid):
                continue
            directory = candidate.path / fingerprint
            directory.mkdir(parents=True, exist_ok=True)
            # Test by writing: permission bits do not show read-only mounts and full disks.
            with tempfile.TemporaryFile(dir=directory) as probe:
                probe.write(b"klog")
                probe.flush()
        except OSError:
            continue
        return directory
    return None


def _make_private(path: Path, uid: int | None) -> bool:
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()
    others_can_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not others_can_write


def seed_from_package(package_dir: Path, fingerprint: str, directory: Path) -> None:
    """Copy kernels from the cache in ``package_dir`` to ``directory``, if ``directory`` is empty.

    ``directory`` is another cache if the user cannot write to ``package_dir`` or has set
    NUMBA_CACHE_DIR. Without the copy, a container image that root built and warmed up would compile
    all kernels again when another user runs it.
    """
    source = package_dir / "__pycache__" / CACHE_NAME / fingerprint
    with contextlib.suppress(OSError):
        if source == directory or not source.is_dir() or any(directory.iterdir()):
            return
        copied = Path(tempfile.mkdtemp(prefix=f"{fingerprint}-", dir=directory.parent))
        try:
            shutil.copytree(source, copied, dirs_exist_ok=True)
            copied.replace(directory)  # fails unless ``directory`` is still empty
        finally:
            shutil.rmtree(copied, ignore_errors=True)


def remove_outdated(package_dir: Path, fingerprint: str) -> None:
    """Delete kernels in the cache in ``package_dir`` that were compiled from other sources.

    ``fingerprint`` names the present sources: ``<name>-<digest of the sources>``, followed by
    ``.checked`` for kernels with bounds checks. Kernels with the same name and another digest are
    deleted.
    """
    kernels, digest = fingerprint.split(".")[0].rsplit("-", 1)
    with contextlib.suppress(OSError):
        for entry in (package_dir / "__pycache__" / CACHE_NAME).iterdir():
            of, _, found = entry.name.split(".")[0].rpartition("-")
            if of == kernels and found != digest:
                shutil.rmtree(entry, ignore_errors=True)


@cache
def cache_directory(source: str) -> Path | None:
    """Return the cache directory for the kernels that the file ``source`` defines.

    Returns None if no directory is usable (`find_cache_directory`). If the directory is empty, the
    first call for ``source`` copies the kernels that are cached in the folder of ``source`` to it.
    The first call also deletes kernels in that folder that were compiled from other versions of
    their sources.
    """
    package_dir = Path(source).parent
    kernels = _fingerprint(source)
    candidates = cache_candidates(
        package_dir,
        os.environ,
        home_directory(),
        Path(tempfile.gettempdir()),
        current_uid(),
    )
    directory = find_cache_directory(candidates, kernels, current_uid())
    if directory is not None:
        seed_from_package(package_dir, kernels, directory)
        remove_outdated(package_dir, kernels)
    return directory


def _fingerprint(source: str) -> str:
    """Return a name with a digest of the source files of this package and, if ``source`` lies in
    another package, of ``source``.

    Kernels call functions of other files, and numba's own cache key covers only the file that
    defines the kernel. The key also does not contain NUMBA_BOUNDSCHECK, so the name ends with
    ``.checked`` if that variable asks for checks.
    """
    digest = hashlib.sha256()
    for file in sorted(resources.files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            digest.update(file.read_bytes())
    path = Path(source)
    kernels = "records"
    if path.parent != Path(__file__).parent:
        kernels = path.stem
        digest.update(path.read_bytes() if path.exists() else b"")
    checked = ".checked" if os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0") else ""
    return f"{kernels}-{digest.hexdigest()[:16]}{checked}"


def is_warm(source: str) -> bool:
    """Whether all kernels of the file ``source`` are in the cache, so that none must be compiled.

    For a file of this package, all kernels of the package must be in the cache.
    Only kernels count that were compiled for the running version of Python, the installed version
    of numba and the present processor. The call does not import numba.
    """
    directory = cache_directory(source)
    stamp = _stamp_name()
    return directory is not None and stamp is not None and (directory / stamp).exists()


def mark_warm(source: str) -> None:
    """Record that all kernels of the file ``source`` are cached; :func:`is_warm` is then True.

    Without a usable cache directory, or without numba, the call has no effect.
    """
    directory = cache_directory(source)
    stamp = _stamp_name()
    if directory is not None and stamp is not None:
        (directory / stamp).touch()


def claim_first_use(source: str) -> bool:
    """Whether kernels of the package of the file ``source`` will have to be compiled on this
    machine for the first time; True in one process only, unless no directory is usable.

    The call does not import numba. If the result is True, an empty file is created in the cache
    directory, so that later calls return False.
    """
    stamp = _stamp_name()
    if stamp is None or os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return False
    directory = cache_directory(source)
    if directory is None:
        return True
    if (directory / stamp).exists() or any(directory.rglob("*.nbi")):
        return False
    try:
        (directory / f"first-{stamp}").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        pass  # another user's cache, or a full disk
    return True


def _stamp_name() -> str | None:
    try:
        version = metadata.version("numba")
    except metadata.PackageNotFoundError:
        return None
    return f"warm-{sys.implementation.cache_tag}-{version}-{processor(os.environ)}"


def processor(environ: Mapping[str, str], cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return a short name for the processor that numba compiles for.

    Compiled kernels are useless on another processor.
    """
    digest = hashlib.sha256(platform.machine().encode())
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        digest.update(f"{name}={environ.get(name)}".encode())
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text().partition("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            if name.strip() in _PROCESSOR_FIELDS:
                digest.update(value.encode())
    return digest.hexdigest()[:8]


def current_uid() -> int | None:
    """Return the user id of this process; None on a system without user ids."""
    return os.getuid() if hasattr(os, "getuid") else None


def home_directory() -> Path | None:
    """Return the user's home directory; None for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return None
