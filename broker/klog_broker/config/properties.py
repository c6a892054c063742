"""The syntax of configuration files, `pyspark_klog.properties`, with a configuration's errors."""

from pathlib import Path

from klog_broker.config.types import ConfigError
from pyspark_klog import properties
from pyspark_klog.properties import Entry as Entry
from pyspark_klog.properties import escape as escape


def read_properties(path: Path) -> list[Entry]:
    """The entries of a file; ConfigError if it cannot be read."""
    try:
        return properties.read_properties(path)
    except properties.PropertiesError as error:
        raise ConfigError(str(error)) from None


def parse_properties(text: str, *, file: str = "") -> list[Entry]:
    """The entries of `text` in their order; ConfigError for an incomplete ``\\u`` escape."""
    try:
        return properties.parse_properties(text, file=file)
    except properties.PropertiesError as error:
        raise ConfigError(str(error)) from None
