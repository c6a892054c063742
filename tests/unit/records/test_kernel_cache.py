"""The folder of compiled kernels, when some folders are read-only or belong to another user."""

import os
from pathlib import Path

import pytest

from pyspark_klog.records.kernels.cache import (
    CACHE_NAME,
    CacheCandidate,
    cache_candidates,
    claim_first_use,
    find_cache_directory,
    mark_warm,
    processor,
    remove_outdated,
    seed_from_package,
)

UID = os.getuid()
KERNELS = "records-0123456789abcdef"


def unwritable(path: Path) -> Path:
    """Return a folder that no user can make, because it is below a file."""
    path.write_text("a file")
    return path / "below"


def test_the_order_of_places(tmp_path: Path) -> None:
    environ = {"NUMBA_CACHE_DIR": "/chosen"}
    found = cache_candidates(tmp_path / "package", environ, Path("/home/me"), Path("/tmp"), 1000)
    assert [candidate.path for candidate in found] == [
        Path("/chosen") / CACHE_NAME,
        tmp_path / "package" / "__pycache__" / CACHE_NAME,
        Path("/home/me/.cache") / CACHE_NAME,
        Path("/tmp") / f"{CACHE_NAME}-1000",
    ]
    assert [candidate.private for candidate in found] == [False, False, False, True]


def test_the_users_cache_by_xdg_and_no_home_at_all() -> None:
    package, temp = Path("/package"), Path("/tmp")
    environ = {"XDG_CACHE_HOME": "/xdg"}
    found = cache_candidates(package, environ, Path("/home/me"), temp, 1)
    assert found[1].path == Path("/xdg") / CACHE_NAME
    assert len(cache_candidates(package, {}, None, temp, 1)) == 2


def test_without_user_numbers_the_temporary_folder_is_the_users_own() -> None:
    found = cache_candidates(Path("/package"), {}, None, Path("/tmp"), None)
    assert found[-1] == CacheCandidate(Path("/tmp") / CACHE_NAME, False)


def test_the_first_place_that_can_be_written_is_taken(tmp_path: Path) -> None:
    package = CacheCandidate(unwritable(tmp_path / "package"), False)
    user = CacheCandidate(unwritable(tmp_path / "user"), False)
    temp = CacheCandidate(tmp_path / "temp" / f"{CACHE_NAME}-{UID}", True)
    good = CacheCandidate(tmp_path / "good", False)
    assert find_cache_directory([package, good, temp], KERNELS, UID) == good.path / KERNELS
    found = find_cache_directory([package, user, temp], KERNELS, UID)
    assert found == temp.path / KERNELS
    assert temp.path.stat().st_mode & 0o777 == 0o700
    assert list(found.iterdir()) == []
    # Found again by the next process.
    assert find_cache_directory([package, user, temp], KERNELS, UID) == found


def test_no_place_at_all(tmp_path: Path) -> None:
    candidates = [CacheCandidate(unwritable(tmp_path / name), False) for name in "ab"]
    assert find_cache_directory(candidates, KERNELS, UID) is None
    assert find_cache_directory([], KERNELS, UID) is None


def test_a_temporary_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    # Files in the folder are loaded as machine code.
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    assert find_cache_directory([CacheCandidate(theirs, True)], KERNELS, UID + 1) is None
    assert find_cache_directory([CacheCandidate(theirs, True)], KERNELS, UID) is not None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722])
def test_a_temporary_folder_that_others_can_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    assert find_cache_directory([CacheCandidate(shared, True)], KERNELS, UID) is None


def test_a_link_in_the_temporary_folder_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(target)
    assert find_cache_directory([CacheCandidate(link, True)], KERNELS, UID) is None


def kept(package: Path, name: str) -> Path:
    folder = package / "__pycache__" / CACHE_NAME / name
    (folder / "kernels_abc").mkdir(parents=True)
    (folder / "kernels_abc" / "walk.nbi").write_text(name)
    return folder


def test_what_the_package_holds_fills_a_new_folder(tmp_path: Path) -> None:
    kept(tmp_path / "package", KERNELS)
    directory = tmp_path / "user" / KERNELS
    directory.mkdir(parents=True)
    seed_from_package(tmp_path / "package", KERNELS, directory)
    assert (directory / "kernels_abc" / "walk.nbi").read_text() == KERNELS
    assert list(directory.parent.iterdir()) == [directory]


def test_a_folder_with_something_in_it_is_not_touched(tmp_path: Path) -> None:
    kept(tmp_path / "package", KERNELS)
    directory = tmp_path / "user" / KERNELS
    directory.mkdir(parents=True)
    (directory / "mine").write_text("mine")
    seed_from_package(tmp_path / "package", KERNELS, directory)
    assert [path.name for path in directory.iterdir()] == ["mine"]
    seed_from_package(tmp_path / "nothing here", KERNELS, directory)


def test_older_sources_kernels_go_from_the_package(tmp_path: Path) -> None:
    current = kept(tmp_path, KERNELS)
    checked = kept(tmp_path, f"{KERNELS}.checked")
    old = [kept(tmp_path, "records-fedcba9876543210"), kept(tmp_path, "records-00.checked")]
    other = kept(tmp_path, "produce_kernel-fedcba9876543210")
    remove_outdated(tmp_path, KERNELS)
    assert [path.exists() for path in (current, checked, other)] == [True] * 3
    assert [path.exists() for path in old] == [False, False]
    remove_outdated(tmp_path / "nothing here", KERNELS)


def test_kernels_of_another_processor_are_not_warm(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    text = "model\t: {}\ncpu MHz\t: {}\nflags\t: sse avx\n\nmodel\t: 9\n"

    def name(model: int, megahertz: int, **environ: str) -> str:
        cpuinfo.write_text(text.format(model, megahertz))
        return processor(environ, cpuinfo)

    assert name(85, 2000) == name(85, 3000)
    others = [name(86, 2000), name(85, 2000, NUMBA_CPU_NAME="generic")]
    others += [processor({}, tmp_path / "none"), name(85, 2000)]
    assert len(set(others)) == 4


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A source file with kernels that nobody has compiled yet."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    source = tmp_path / "package" / "kernels.py"
    source.parent.mkdir()
    source.write_text("x = 1")
    return str(source)


def _cache_of(source: str) -> Path:
    [directory] = (Path(source).parent / "__pycache__" / CACHE_NAME).iterdir()
    return directory


def test_the_first_use_is_claimed_once(kernels: str) -> None:
    assert [claim_first_use(kernels) for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize("by_warm_up", [True, False])
def test_compiled_kernels_have_no_first_use(kernels: str, by_warm_up: bool) -> None:
    mark_warm(kernels)
    if not by_warm_up:
        directory = _cache_of(kernels)
        for stamp in directory.iterdir():
            stamp.unlink()
        (directory / "kernels_1").mkdir()
        (directory / "kernels_1" / "scan.f-1.py311.nbi").touch()
    assert not claim_first_use(kernels)


def test_kernels_that_are_not_compiled_have_no_first_use(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not claim_first_use(kernels)
