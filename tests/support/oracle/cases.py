"""Makes the cases of the oracle: sound requests with one or more fields changed, by a seed.

A case depends on the seed, its number and the versions alone: it can be sent again by itself.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest
from pyspark_klog.protocol.fields import NO_UUID
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Field, Message, Struct, default_of
from pyspark_klog.protocol.registry import find_api
from tests.support.oracle.maker import Maker
from tests.support.oracle.requests import BASES
from tests.support.oracle.steps import Case, whole
from tests.support.oracle.values import NEVER_LARGE, UNCHANGED, VALUES

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_EMPTY: dict[str, Any] = {"string": "", "bytes": b"", "records": b"", "uuid": NO_UUID}
_LONG_STRING = 32_000


@dataclass(frozen=True)
class Place:
    """A declared field of an API's request. ``of`` is its struct; elements are ``name[]``."""

    key: ApiKey
    of: type[Struct]
    name: str
    row: Field

    @property
    def api_name(self) -> str:
        """Kafka's name of the API."""
        return find_api(self.key).name


@dataclass(frozen=True)
class Change:
    """The change of a place: ``kind``, or the value number ``index`` of `VALUES`."""

    place: Place
    kind: str
    index: int = 0


@cache
def places(key: ApiKey) -> tuple[Place, ...]:
    """All fields that a request of the API has in any version."""
    found: dict[tuple[type[Struct], str], Place] = {}

    def walk(cls: type[Struct]) -> None:
        for name, row in cls.__fields__.items():
            if f"{find_api(key).name}.{name}" in UNCHANGED:
                continue
            found[cls, name] = Place(key, cls, name, row)
            inner = row.element
            if inner is not None and inner.struct is None:
                found[cls, f"{name}[]"] = Place(key, cls, f"{name}[]", inner)
            made = row.struct or (inner.struct if inner else None)
            if made is not None:
                walk(made)

    walk(find_api(key).request)
    return tuple(found.values())


def changes(place: Place) -> Iterator[Change]:
    """Everything that can be done to a field."""
    row = place.row
    if row.nullable_since is not None:
        yield Change(place, "null")
    if row.kind == "array" or row.kind in _EMPTY:
        yield Change(place, "empty")
    if row.kind == "array":
        yield Change(place, "duplicate")
    if row.kind in _BITS:
        yield from (Change(place, "smallest"), Change(place, "-1"), Change(place, "0"))
        if place.name not in NEVER_LARGE:
            yield Change(place, "largest")
    if row.kind == "bool":
        yield Change(place, "other")
    if row.kind == "string":
        yield Change(place, "long")
    pool = _pool(place, Maker(0, 0, Random(0)))
    yield from (Change(place, "value", index) for index in range(len(pool)))


def _pool(place: Place, maker: Maker) -> list[Any]:
    name = place.name
    for found in (f"{place.api_name}.configs.{name}", f"{place.api_name}.{name}", name):
        is_config = ".configs." in found
        if found in VALUES and is_config == (is_config and "Config" in place.of.__name__):
            return VALUES[found](maker)
    return []


class Plan:
    """The cases of a seed. ``versions`` are those of each API that can be compared."""

    def __init__(self, seed: int, versions: Mapping[ApiKey, tuple[int, ...]]) -> None:
        self.seed = seed
        self.versions = versions
        self._singles = [
            change
            for key in BASES
            for place in places(key)
            for change in changes(place)
            if any(place.row.in_version(each) for each in versions[key])
        ]
        Random(seed).shuffle(self._singles)

    def case(self, number: int) -> Case:
        """Request ``number``: first each single change in some version, then several at once."""
        random = Random(f"{self.seed}/{number}")
        if number < len(self._singles):
            chosen = [self._singles[number]]
        else:
            first = random.choice(self._singles)
            fits = [each for each in self._singles if each.place.key == first.place.key]
            chosen = [first, *random.choices(fits, k=random.choice((0, 1, 1, 2)))]
        key = chosen[0].place.key
        able = [each for each in self.versions[key] if chosen[0].place.row.in_version(each)]
        version = random.choice(able)
        maker = Maker(number, version, random)
        request = deepcopy(BASES[key](maker))
        done = [_apply(request, change, maker) for change in chosen]
        fit(request, version)
        if getattr(request, "group_id", None) == "":
            # Other cases use the empty group id, too: delete the offsets that this case commits.
            maker.probe(DeleteGroupsRequest(groups_names=[""]), 1)
        return Case(
            number,
            request,
            version,
            [each for each in done if each],
            maker.topics,
            maker.setup,
            maker.probes,
        )


def _apply(request: Message, change: Change, maker: Maker) -> str:
    """Change one of the request's structs; returns a sentence, or nothing if none has the field."""
    place = change.place
    if not place.row.in_version(maker.version):
        return ""
    structs = [each for each in _structs(request, maker.version) if type(each) is place.of]
    if not structs:
        return ""
    struct = maker.random.choice(structs)
    name = place.name.removesuffix("[]")
    old = getattr(struct, name)
    if name != place.name:
        new = _changed(None, change, maker)
        value: Any = [new, *(old or [])[1:]]
    else:
        value = _changed(old, change, maker)
    if value is None and not place.row.nullable_in(maker.version):
        return ""
    setattr(struct, name, value)
    return f"{place.of.__name__}.{place.name} is {change.kind}: {whole(value)}"


def _changed(old: Any, change: Change, maker: Maker) -> Any:
    row = change.place.row
    if change.kind == "value":
        return _pool(change.place, maker)[change.index]
    if change.kind == "null":
        return None
    if change.kind == "empty":
        return [] if row.kind == "array" else _EMPTY[row.kind]
    if change.kind == "duplicate":
        return [*(old or []), *deepcopy((old or [])[:1])]
    if change.kind == "other":
        return not old
    if change.kind == "long":
        return maker.own("-").ljust(_LONG_STRING, "x")
    limit = 1 << (_BITS[row.kind] - 1)
    return {"smallest": -limit, "largest": limit - 1, "-1": -1, "0": 0}[change.kind]


def _structs(value: Any, version: int) -> Iterator[Struct]:
    if isinstance(value, Struct):
        yield value
        for name, row in type(value).__fields__.items():
            if row.in_version(version):
                yield from _structs(getattr(value, name), version)
    elif isinstance(value, list):
        for each in value:
            yield from _structs(each, version)


def fit(value: Any, version: int) -> None:
    """Give every field that the version lacks its default: the encoder refuses other values."""
    for struct in list(_structs(value, version)):
        for name, row in type(struct).__fields__.items():
            if not row.in_version(version):
                setattr(struct, name, default_of(row))
