"""A home for Spark from which it starts executors, whose logs stay in it."""

from pathlib import Path

import pyspark


def spark_home(folder: Path) -> Path:
    """Fill a folder that is to be SPARK_HOME: executors are started with the scripts there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars"):
        (folder / name).symlink_to(Path(pyspark.__file__).parent / name)
    return folder
