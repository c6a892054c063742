"""Request and response classes, with versions, of all APIs that klog knows; loaded lazily."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from pyspark_klog.protocol.errors import UnsupportedVersion
from pyspark_klog.protocol.keys import ApiKey as ApiKey
from pyspark_klog.protocol.message import Request, Response

API_KEYS: tuple[ApiKey, ...] = tuple(ApiKey)


@dataclass(frozen=True, slots=True)
class Api:
    """One API. klog can read and write ``min_version`` to ``max_version``, both inclusive."""

    key: ApiKey
    request: type[Request]
    response: type[Response]

    @property
    def name(self) -> str:
        """Kafka's name of the API, for example ``ListOffsets``."""
        return self.request.__name__.removesuffix("Request")

    @property
    def min_version(self) -> int:
        return self.request.min_version

    @property
    def max_version(self) -> int:
        return self.request.max_version

    @property
    def first_flexible_version(self) -> int | None:
        return self.request.first_flexible_version


# Cached APIs by key, filled at first use, because the API of each request is looked up here.
_loaded: dict[int, Api] = {}


def _load(key: ApiKey) -> Api:
    name = "".join(word.capitalize() for word in key.name.split("_"))
    module = import_module(f"pyspark_klog.protocol.apis.{key.name.lower()}")
    return Api(key, getattr(module, f"{name}Request"), getattr(module, f"{name}Response"))


def is_known(key: int) -> bool:
    """Whether klog has the API's message classes; a broker may still not serve the API."""
    return key in ApiKey._value2member_map_


def find_api(key: int) -> Api:
    """Return the API with this key; raises `UnsupportedVersion` for an unknown key."""
    found = _loaded.get(key)
    if found is not None:
        return found
    if not is_known(key):
        raise UnsupportedVersion(f"found API key {key}, which klog does not know")
    found = _loaded[key] = _load(ApiKey(key))
    return found


def request_class(key: int) -> type[Request]:
    """Return the request class of an API; raises `UnsupportedVersion` for an unknown key."""
    return find_api(key).request


def response_class(key: int) -> type[Response]:
    """Return the response class of an API; raises `UnsupportedVersion` for an unknown key."""
    return find_api(key).response
