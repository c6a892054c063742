"""Facts in documents that a program can check: paths exist, and the map names all packages."""

import os
import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MAP = ROOT / "docs" / "architecture.md"

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_QUOTED = re.compile(r"`([^`\s]+)`")


def project_files() -> list[str]:
    """Return the project's own files: every file below the top that .gitignore does not name."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not _is_ignored(f"{name}/", [*ignored, ".git/"])]
        # In a worktree of git .git is a file.
        found += [Path(folder, name) for name in files if not _is_ignored(name, [*ignored, ".git"])]
    return sorted(file.relative_to(ROOT).as_posix() for file in found)


def _is_ignored(name: str, patterns: list[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def first_block(page: str, heading: str) -> str:
    """The first block of code below a heading of the page ``docs/{page}``."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = re.split(rf"^#+ {re.escape(heading)}\n", text, flags=re.MULTILINE)[1]
    return section.split("```\n")[1]


def mapped_paths(text: str) -> list[str]:
    """The paths in the first column of the map's table; a folder ends in a slash."""
    section = text.split("\n## File map\n", 1)[1]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [path for row in rows for path in _QUOTED.findall(row)]


def due_in_map(files: list[str]) -> set[str]:
    """Return what the map has to name: the top, and first levels of packages, tests and docs."""
    due = set()
    for file in files:
        parts = Path(file).parts
        depth = 1
        if parts[0] in ("pyspark_klog", "tests", "docs", "examples"):
            depth = 2
        elif parts[:2] == ("broker", "klog_broker"):
            depth = 3
        elif parts[0] in ("broker", ".ci"):
            depth = 2
        name = "/".join(parts[:depth])
        due.add(f"{name}/" if len(parts) > depth else name)
    return {name for name in due if Path(name).name not in ("__init__.py", "py.typed")}


def broken_links(document: Path) -> list[str]:
    """Links of a document to files of the project that are not there."""
    targets = _LINK.findall(document.read_text(encoding="utf-8"))
    local = [target.split("#")[0] for target in targets if "://" not in target]
    return [target for target in local if target and not (document.parent / target).exists()]


def unknown_files(document: Path) -> list[str]:
    """Source files that a document quotes, from the top or from inside a package, and that are not.

    A name without a folder counts too; one with a star or an N in place of a name does not.
    """
    quoted = _QUOTED.findall(document.read_text(encoding="utf-8"))
    files = [name for name in quoted if name.endswith((".py", ".md", ".toml")) and "*" not in name]
    roots = [ROOT, ROOT / "broker", ROOT / "pyspark_klog", ROOT / "broker" / "klog_broker"]
    roots += [document.parent, *(path for path in (ROOT / "pyspark_klog").iterdir())]
    return [
        name
        for name in files
        if not any((root / name).exists() for root in roots) and not _somewhere(name)
    ]


def _somewhere(name: str) -> bool:
    return "/" not in name and any(Path(file).name == name for file in project_files())


def code_block(page: str, language: str, first_line: str) -> str:
    """Return the code block of a page that begins with this line."""
    begin = page.index(f"\n```{language}\n{first_line}") + len(f"\n```{language}\n")
    return page[begin : page.index("\n```", begin) + 1]
