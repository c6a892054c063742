"""The option ``path``: a directory that the driver and every executor see as local files. Pure."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark_klog.spark.errors import OptionError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
"""A URL's scheme, of at least two letters, because one letter is a drive of Windows."""


def local_directory(text: str) -> str:
    """The absolute path that the option names, as a path or as a file:// URL.

    :raises OptionError: if ``text`` is empty, or a URL with another scheme or host
    """
    given = text.strip()
    found = _SCHEME.match(given)
    if found is not None:
        scheme = found[1].lower()
        parts = urlsplit(given)
        if scheme != "file" or parts.netloc not in ("", "localhost"):
            raise OptionError(
                f"path is {text!r}; expected a directory that the driver and every executor see as "
                f"local files, as in /mnt/kafka-data: {scheme}://{parts.netloc} cannot be read, "
                "mount it or copy it there, or leave out path to read through the brokers"
            )
        given = unquote(parts.path)
    if not given:
        raise OptionError("option path is empty; expected a broker's data directory")
    return str(Path(given).absolute())
