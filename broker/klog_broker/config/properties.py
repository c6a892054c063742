"""Reads configuration files with the parser `pyspark_klog.properties`, and raises ConfigError for
the parser's errors."""

from pathlib import Path

from klog_broker.config.types import ConfigError
from pyspark_klog import properties
from pyspark_klog.properties import Entry as Entry
from pyspark_klog.properties import escape as escape


def read_properties(path: Path) -> list[Entry]:
    """Return the entries of a file; raise ConfigError if the file cannot be read or parsed."""
    try:
        return properties.read_properties(path)
    except properties.PropertiesError as error:
        raise ConfigError(str(error)) from None


def parse_properties(text: str, *, file: str = "") -> list[Entry]:
    """Return the entries of `text` in order; raise ConfigError for an incomplete ``\\u`` escape."""
    try:
        return properties.parse_properties(text, file=file)
    except properties.PropertiesError as error:
        raise ConfigError(str(error)) from None
