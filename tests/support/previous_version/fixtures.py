"""Fixtures for tests in which one version writes data and another version reads the data."""

from typing import NamedTuple

import pytest

from tests.support.previous_version.versions import (
    Version,
    VersionMissing,
    previous_version,
    this_version,
)


class Versions(NamedTuple):
    """The version that writes first, and the version that goes on with the data."""

    writer: Version
    reader: Version


@pytest.fixture(scope="session")
def previous() -> Version:
    try:
        return previous_version()
    except VersionMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=["previous-to-this", "this-to-previous"])
def versions(request: pytest.FixtureRequest, previous: Version) -> Versions:
    """Both directions: an upgrade, and the way back."""
    if request.param == "previous-to-this":
        return Versions(previous, this_version())
    return Versions(this_version(), previous)
