"""User-supplied Python functions, which settings name as ``module:callable``.

The same settings of Kafka's Java client name Java classes.
"""

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark_klog.security.errors import SettingError

_OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SHADED = "kafkashaded."


@dataclass(frozen=True, slots=True)
class UserFunction:
    """The name of a user-supplied function, and the setting that named it, for error messages."""

    setting: str
    name: str

    def load(self) -> Callable[..., Any]:
        """Import the function's module and return the function.

        :raises SettingError: if the module cannot be imported (the text names this Python
            interpreter), or the module has no such function
        """
        module, _, path = self.name.partition(":")
        try:
            found: Any = importlib.import_module(module)
        except Exception as error:
            raise SettingError(
                f"{self.setting} is {self.name}, and module {module} cannot be imported in "
                f"{sys.executable}: {type(error).__name__}: {error}; install it for the driver and "
                "every executor, or ship it with --py-files"
            ) from None
        for part in path.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            raise SettingError(
                f"{self.setting} is {self.name}, and module {module} has no function {path}"
            )
        function: Callable[..., Any] = found
        return function


def parse_user_function(setting: str, value: str) -> UserFunction | None:
    """Return the function that ``value`` names; None if it has not the form module:callable."""
    return UserFunction(setting, value) if _OWN.fullmatch(value) else None


def java_class(value: str) -> str:
    """Return the name of a Java class without a leading ``kafkashaded.``, Databricks' prefix."""
    return value.removeprefix(_SHADED)
