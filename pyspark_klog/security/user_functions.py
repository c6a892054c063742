"""Functions of a user's own, named ``module:callable``, where Java's settings name a class."""

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
class OwnFunction:
    """A function by its name; ``setting`` is where it was given, for messages."""

    setting: str
    name: str

    def load(self) -> Callable[..., Any]:
        """The function, imported here.

        :raises SettingError: if there is no such function, naming this Python interpreter
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


def own_function(setting: str, value: str) -> OwnFunction | None:
    """``value`` as a function of the user's own, if it is written like one."""
    return OwnFunction(setting, value) if _OWN.fullmatch(value) else None


def java_class(value: str) -> str:
    """A Java class's name, without ``kafkashaded.`` before it."""
    return value.removeprefix(_SHADED)
