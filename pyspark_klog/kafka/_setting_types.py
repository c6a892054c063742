"""`Row`, a row in the tables of the client's settings, and the functions that make rows."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

PRODUCER = ("producer",)
CONSUMER = ("consumer",)
ALL = ("producer", "consumer", "admin")
"""The kinds of clients in which a setting acts."""


class Kind(Enum):
    """The type of a setting's value."""

    NUMBER = "a whole number"
    FRACTION = "a number"
    FLAG = "true or false"
    TEXT = "text"
    LIST = "words with commas between them"
    SECRET = "text that is never shown"
    CALLBACK = "a callable"
    ANY = "any object"


class Row(NamedTuple):
    """One setting of the client, with all its names."""

    name: str
    """The name by which the client looks the value up."""
    kind: Kind
    default: object
    doc: str = ""
    aliases: tuple[str, ...] = ()
    """The other names, of librdkafka or of Java's clients."""
    low: int = 0
    high: int = INT_MAX
    """The inclusive bounds of a number."""
    choices: tuple[str, ...] = ()
    """The allowed values of a text, or words of a list; empty if all are allowed."""
    clients: tuple[str, ...] = ALL
    """The kinds of clients in which the setting acts; others ignore it."""
    client: str | None = None
    """The setting of `pyspark_klog.client.settings` that the value becomes."""
    without: str = ""
    """The reason why the setting has no effect."""
    is_refused: bool = False
    """Whether a value other than the default is an error, for the reason in ``without``, because a
    client that ignored it would change security or lose a guarantee."""


def number(
    name: str,
    default: int | None,
    doc: str,
    low: int = 0,
    high: int = INT_MAX,
    aliases: tuple[str, ...] = (),
    *,
    clients: tuple[str, ...] = ALL,
    client: str | None = None,
) -> Row:
    """Return the row of a whole number."""
    return Row(name, Kind.NUMBER, default, doc, aliases, low, high, (), clients, client)


def flag(
    name: str,
    default: bool | None,
    doc: str,
    aliases: tuple[str, ...] = (),
    *,
    clients: tuple[str, ...] = ALL,
    client: str | None = None,
) -> Row:
    """Return the row of a setting that is true or false."""
    return Row(name, Kind.FLAG, default, doc, aliases, clients=clients, client=client)


def text(
    name: str,
    default: str | None,
    doc: str,
    aliases: tuple[str, ...] = (),
    *,
    choices: tuple[str, ...] = (),
    clients: tuple[str, ...] = ALL,
    client: str | None = None,
) -> Row:
    """Return the row of a text, which is one of ``choices`` if there are some."""
    return Row(
        *(name, Kind.TEXT, default, doc, aliases),
        choices=choices,
        clients=clients,
        client=client,
    )


def secret(name: str, doc: str) -> Row:
    """Return the row of a text that is never shown."""
    return Row(name, Kind.SECRET, None, doc)


def callback(name: str, doc: str, clients: tuple[str, ...] = ALL) -> Row:
    """Return the row of a callable."""
    return Row(name, Kind.CALLBACK, None, doc, clients=clients)


def ignored(reason: str, *rows: Row) -> Iterable[Row]:
    """Return the rows as rows of settings without effect."""
    return (row._replace(without=reason) for row in rows)


def refused(reason: str, *rows: Row) -> Iterable[Row]:
    """Return the rows as rows of settings that may only have their default."""
    return (row._replace(without=reason, is_refused=True) for row in rows)


def ignored_texts(reason: str, *names: str, clients: tuple[str, ...] = ALL) -> Iterable[Row]:
    """Return rows of settings without effect whose value may be any text or object."""
    return (Row(name, Kind.ANY, None, clients=clients, without=reason) for name in names)
