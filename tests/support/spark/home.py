"""Homes for Spark: folders that may be SPARK_HOME."""

import contextlib
import hashlib
from importlib import metadata
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[3]


def spark_home(folder: Path) -> Path:
    """Fill a folder that is to be SPARK_HOME: executors are started with the scripts there, and
    their logs stay in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars"):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(Path(pyspark.__file__).parent / name)
    return folder


def compiled_home() -> Path:
    """A home without Spark's zip file of PySpark, always the same one.

    Each Python that Spark starts would compile PySpark from that file, which takes two thirds of
    such a start (0.6 s); without it PySpark comes from its installation, with compiled modules.
    """
    place = hashlib.sha256(pyspark.__file__.encode()).hexdigest()[:12]
    return spark_home(ROOT / ".dev" / "spark-home" / f"{metadata.version('pyspark')}-{place}")
