"""Runs the checks of `python -m pyspark_klog check`, prints a line for each, and returns the exit
code."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark_klog.check.items import Item, ItemVerdict, fail, note
from pyspark_klog.check.java import check_java
from pyspark_klog.check.pythons import check_pythons
from pyspark_klog.properties import PropertiesError, read_properties


def check(environ: Mapping[str, str], servers: str | None, config: Path | None) -> int:
    """Run all checks of `python -m pyspark_klog check`, and print a line for each. Return 1 if a
    check failed, else 0."""
    failed = 0
    for item in _items(environ, servers, config):
        sys.stdout.write(f"{item}\n")
        sys.stdout.flush()
        failed += item.verdict is ItemVerdict.FAIL
    return int(failed > 0)


def _items(environ: Mapping[str, str], servers: str | None, config: Path | None) -> Iterator[Item]:
    if environ.get("SPARK_REMOTE"):
        yield note(
            f"SPARK_REMOTE={environ['SPARK_REMOTE']}: a Spark Connect server runs klog, so the "
            "Python and Java of that server matter: run this check there, too"
        )
    else:
        yield from check_pythons(environ)
        yield check_java(environ)
    if servers is None:
        return
    # Import check_brokers late: the import takes a while, and fails if a package is missing.
    try:
        settings = {entry.name: entry.text for entry in read_properties(config)} if config else {}
        from pyspark_klog.check.brokers import check_brokers
    except (PropertiesError, ImportError) as error:
        yield fail(f"brokers: {error}")
        return
    yield from check_brokers(servers, settings)
