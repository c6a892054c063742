"""Origins of results of parity tests: the commit, the day and the releases of a run."""

import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

Run = dict[str, str]
"""``commit`` (with ``+`` where the code had changes that were not committed), ``date``, ``spark``,
``python``."""
Runs = dict[str, dict[str, Run]]
"""Runs by engine and by file of tests."""

_CODE = ("pyspark_klog", "broker")
_COMMIT_CHARACTERS = 10


def this_run(root: Path) -> Run:
    """Return the commit, day and releases of this process's run."""
    commit = _git(root, "rev-parse", f"--short={_COMMIT_CHARACTERS}", "HEAD") or "unknown"
    changed = "+" if _git(root, "status", "--porcelain", "--", *_CODE) else ""
    return {
        "commit": commit + changed,
        "date": datetime.now(UTC).date().isoformat(),
        "spark": metadata.version("pyspark"),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def lines(runs: Runs) -> list[str]:
    """A line for each engine and run that it has results of."""
    found = []
    for engine, by_file in sorted(runs.items()):
        counts: dict[tuple[tuple[str, str], ...], int] = {}
        for run in by_file.values():
            key = tuple(sorted(run.items()))
            counts[key] = counts.get(key, 0) + 1
        for key, count in sorted(counts.items()):
            run = dict(key)
            found.append(
                f"| {engine} | {count} | `{run['commit']}` | {run['date']} | {run['spark']} | "
                f"{run['python']} |"
            )
    return found


def behind(runs: Runs, root: Path) -> list[str]:
    """Engines whose oldest results are of older code, and by how many commits to it."""
    found = []
    for engine, by_file in sorted(runs.items()):
        counts = [_commits_since(run["commit"].rstrip("+"), root) for run in by_file.values()]
        if None in counts:
            found.append(f"{engine}: of a commit that is not in this history")
        elif any(counts):
            found.append(f"{engine}: up to {max(count or 0 for count in counts)} commits older")
    return found


def _commits_since(commit: str, root: Path) -> int | None:
    count = _git(root, "rev-list", "--count", f"{commit}..HEAD", "--", *_CODE)
    return int(count) if count else None


def _git(root: Path, *arguments: str) -> str:
    """Return git's output; "" if git fails, as in an export without a history."""
    try:
        ran = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""
