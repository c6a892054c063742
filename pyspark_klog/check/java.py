"""Checks whether Spark would find Java, and whether this Java is new enough for Spark."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pyspark_klog.check.items import Item, fail, note, ok

_TIMEOUT_S = 30.0
_LEAST = 17
_NAMED_BY_SPARK = (17, 21)
_WHAT_TO_DO = "install it and set JAVA_HOME to its folder"


def check_java(environ: Mapping[str, str]) -> Item:
    """Check the version of the Java that Spark's scripts would find: of JAVA_HOME, else of PATH."""
    home = environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(path, path=environ.get("PATH"))
    where = f"JAVA_HOME={home}" if home else "java of PATH, as JAVA_HOME is not set"
    if found is None:
        return fail(f"Java: there is none ({where}); expected Java 17 or 21: {_WHAT_TO_DO}")
    try:
        ran = subprocess.run(
            [found, "-version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
        said = ran.stderr + ran.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    version = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', said)
    if version is None:
        last = said.strip().splitlines()[-1:] or ["it printed nothing"]
        return fail(
            f"Java: {found} ({where}) prints no version: {last[0]}; expected Java 17 or "
            f"21: {_WHAT_TO_DO}"
        )
    # Java 8 and older print their version as 1.8, 1.7 and so on.
    major = int(version[2] or 1) if version[1] == "1" else int(version[1])
    text = f"Java: {major}, {found} ({where})"
    if major < _LEAST:
        return fail(f"{text}; expected 17 or 21: {_WHAT_TO_DO}")
    return (
        ok(text) if major in _NAMED_BY_SPARK else note(f"{text}; klog's tests run with 17 and 21")
    )
