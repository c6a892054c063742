"""Generates the source of a decoder for one message class in one version.

The source is one function that calls few others. One ``unpack`` call reads consecutive fields of
fixed size directly into the message's slots, and in versions that are not flexible also the length
of the value after them. Arrays of structs are loops in the same function. codec.py generates a
decoder at the first use of a version.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any

from pyspark_klog.errors import InvariantViolation
from pyspark_klog.protocol import wire
from pyspark_klog.protocol.message import NO_TAGS, UNSET, Field, Struct, slot_name

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The field kinds of a fixed size, with their format characters for the struct module."""

Decoder = Callable[[Any, int], tuple[Any, int]]

BoundedDecoder = Callable[[Any, int, int], tuple[Any, int]]

StepDecoder = Callable[[Any, int, int], Generator[None, None, tuple[Any, int]]]


def min_size(row: Field, version: int, flexible: bool) -> int:
    """Return the smallest encoded size of a field's value in bytes, without the tag and size that
    precede a tagged field."""
    if row.kind in FIXED:
        return struct.calcsize(">" + FIXED[row.kind])
    if row.kind == "struct":
        if row.nullable_in(version):
            return 1
        assert row.struct is not None
        return struct_min_size(row.struct, version, flexible)
    if flexible:
        return 1
    return 2 if row.kind == "string" else 4


def struct_min_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """Return the smallest encoded size of a struct in bytes."""
    size = 1 if flexible else 0
    for row in cls.__fields__.values():
        if row.in_version(version) and row.tag is None:
            size += min_size(row, version, flexible)
    return size


def make_decoder(cls: type[Struct], version: int, flexible: bool) -> Decoder:
    """Return a decoder: a function (buffer, position) -> (message, position after the message)."""
    source, names = _DecoderSource(version, flexible).write(cls)
    exec(compile(source, f"<{cls.__name__} v{version} decoder>", "exec"), names)
    decoder: Decoder = names["decode"]
    return decoder


def make_bounded_decoder(cls: type[Struct], version: int, flexible: bool) -> BoundedDecoder:
    """Return a decoder (buffer, position, most elements) -> (message, position after the message).

    The elements of all arrays and the tagged fields count together, those of each array or tagged
    section before they are created. A message with more than "most elements" raises
    MalformedRequest.
    """
    source, names = _DecoderSource(version, flexible, counts=True).write(cls)
    exec(compile(source, f"<{cls.__name__} v{version} bounded decoder>", "exec"), names)
    decoder: BoundedDecoder = names["decode"]
    return decoder


def make_step_decoder(cls: type[Struct], version: int, flexible: bool) -> StepDecoder:
    """Return a generator function (buffer, position, most elements) that decodes a message and
    yields after each array element that is not a number. A message with more than "most elements"
    array elements and tagged fields together raises MalformedRequest."""
    source, names = _DecoderSource(version, flexible, counts=True, in_steps=True).write(cls)
    exec(compile(source, f"<{cls.__name__} v{version} decoder in steps>", "exec"), names)
    decoder: StepDecoder = names["decode"]
    return decoder


class _DecoderSource:
    """Builds the source of a decoder line by line.

    ``pending`` are the fixed-size fields that the next ``unpack`` call reads together.
    """

    def __init__(
        self, version: int, flexible: bool, *, counts: bool = False, in_steps: bool = False
    ) -> None:
        self.version = version
        self.flexible = flexible
        self.counts = counts
        self.in_steps = in_steps
        self.lines: list[str] = []
        self.indent = 1
        self.pending: list[tuple[str, str]] = []
        self.after: list[str] = []
        self.counter = 0
        self.names: dict[str, Any] = {
            "new": object.__new__,
            "NO_TAGS": NO_TAGS,
            "unpack_from": struct.unpack_from,
            "read_uvarint": wire.read_uvarint,
            "long_uvarint": wire.long_uvarint,
            "uuid_of": wire.uuid_of,
            "raise_bad_length": wire.raise_bad_length,
            "raise_bad_count": wire.raise_bad_count,
            "raise_bad_size": wire.raise_bad_size,
            "raise_too_many_elements": wire.raise_too_many_elements,
            "raise_too_many_tags": wire.raise_too_many_tags,
        }

    def write(self, cls: type[Struct]) -> tuple[str, dict[str, Any]]:
        root = self.struct(cls, cls.__name__)
        self.flush()
        self.line(f"return {root}, p")
        body = "\n".join(self.lines)
        view = " view = memoryview(buf)\n" if "view[" in body else ""
        arguments = "buf, p, most" if self.counts else "buf, p"
        left = " left = most\n" if self.counts else ""
        # ``yield from ()`` makes the function a generator even if the message has no array.
        first = " yield from ()\n" if self.in_steps else ""
        return f"def decode({arguments}):\n{first} end = len(buf)\n{left}{view}{body}\n", self.names

    # -- helpers that add lines to the generated source

    def line(self, text: str) -> None:
        self.lines.append(" " * self.indent + text)

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def bind(self, prefix: str, value: object) -> str:
        """Add ``value`` to the globals of the generated function, and return its name."""
        name = self.name(prefix)
        self.names[name] = value
        return name

    def fixed(self, kind: str, target: str) -> None:
        if kind == "uuid":
            raw = self.name("u")
            self.after.append(f"{target} = uuid_of({raw})")
            target = raw
        self.pending.append((FIXED[kind], target))

    def flush(self) -> None:
        """Add one ``unpack`` call that reads all fields in ``pending``."""
        if self.pending:
            layout = struct.Struct(">" + "".join(code for code, _ in self.pending))
            read = self.name("read")
            self.names[read] = layout.unpack_from
            targets = "".join(f"{target}, " for _, target in self.pending)
            self.line(f"{targets}= {read}(buf, p)")
            self.line(f"p += {layout.size}")
            self.pending = []
        for text in self.after:
            self.line(text)
        self.after = []

    # -- methods that generate the code that reads values

    def struct(self, cls: type[Struct], where: str) -> str:
        """Add the code that reads a struct into a new variable; return the variable's name."""
        target = self.name("o")
        self.flush()
        self.line(f"{target} = new({self.bind('C', cls)})")
        tagged: dict[int, tuple[str, Field]] = {}
        for name, row in cls.__fields__.items():
            slot = f"{target}.{slot_name(name, row)}"
            if not row.in_version(self.version):
                self.default(row, slot)
            elif row.tag is not None:
                self.default(row, slot)
                tagged[row.tag] = (name, row)
            else:
                self.value(row, slot, f"{where}.{name}")
        if self.flexible:
            self.tags(target, tagged, where)
        else:
            if tagged:
                raise InvariantViolation(f"{where} v{self.version}: tags need a flexible version")
            self.line(f"{target}.unknown_tagged_fields = NO_TAGS")
        return target

    def default(self, row: Field, slot: str) -> None:
        if row.is_lazy or row.default is None:
            self.line(f"{slot} = None")
        elif row.kind == "array":
            self.line(f"{slot} = []")
        elif row.default is UNSET:
            self.line(f"{slot} = {self.bind('S', row.struct)}()")
        else:
            self.line(f"{slot} = {self.bind('D', row.default)}")

    def value(self, row: Field, target: str, where: str) -> None:
        if row.kind in FIXED:
            self.fixed(row.kind, target)
        elif row.kind == "struct":
            self.struct_value(row, target, where)
        elif row.kind == "array":
            self.array(row, target, where)
        else:
            self.sized(row, target, where)

    def struct_value(self, row: Field, target: str, where: str) -> None:
        assert row.struct is not None
        if not row.nullable_in(self.version):
            value = self.struct(row.struct, where)
            self.flush()
            self.line(f"{target} = {value}")
            return
        present = self.name("n")
        self.fixed("int8", present)
        self.flush()
        self.line(f"if {present} < 0:")
        self.line(f" {target} = None")
        self.line("else:")
        self.indent += 1
        value = self.struct(row.struct, where)
        self.flush()
        self.line(f"{target} = {value}")
        self.indent -= 1

    def length(self, code: str) -> str:
        """Add the code that reads a length or count into a new variable; return its name.

        The variable is -1 for null, both in flexible versions (compact lengths) and in versions
        that are not flexible.
        """
        length = self.name("n")
        if self.flexible:
            self.flush()
            self.line(f"{length} = buf[p]")
            self.line("p += 1")
            self.line(f"if {length} > 127: {length}, p = long_uvarint(buf, p, {length})")
            self.line(f"{length} -= 1")
        else:
            self.pending.append((code, length))
            self.flush()
        return length

    def sized(self, row: Field, target: str, where: str) -> None:
        """Add the code that reads a string, bytes or a record set."""
        length = self.length("h" if row.kind == "string" else "i")
        stop = self.name("e")
        bound = f" or {length} > {wire.MAX_STRING_BYTES}" if row.kind == "string" else ""
        self.line(f"{stop} = p + {length}")
        self.line(f"if {length} < 0 or {stop} > end{bound}:")
        if row.nullable_in(self.version):
            self.line(f" if {length} >= 0: raise_bad_length({where!r}, {length}, end - p)")
            self.line(f" {target} = None")
            self.line("else:")
            self.indent += 1
        else:
            self.line(f" raise_bad_length({where!r}, {length}, end - p)")
        piece = {
            "string": f"str(buf[p:{stop}], 'utf-8')",
            "bytes": f"bytes(buf[p:{stop}])",
            "records": f"view[p:{stop}]",
        }[row.kind]
        self.line(f"{target} = {piece}")
        self.line(f"p = {stop}")
        if row.nullable_in(self.version):
            self.indent -= 1

    def array(self, row: Field, target: str, where: str) -> None:
        element = row.element
        assert element is not None
        least = min_size(element, self.version, self.flexible)
        if least < 1:
            raise InvariantViolation(
                f"{where} v{self.version}: an array's elements need bytes, so that the message's "
                "size bounds their number"
            )
        count = self.length("i")
        self.line(f"if {count} < 0 or {count} * {least} > end - p:")
        if row.nullable_in(self.version):
            self.line(f" if {count} >= 0: raise_bad_count({where!r}, {count}, end - p)")
            self.line(f" {target} = None")
            self.line("else:")
            self.indent += 1
        else:
            self.line(f" raise_bad_count({where!r}, {count}, end - p)")
        self.count(count)
        if element.kind in FIXED and element.kind != "uuid":
            code = FIXED[element.kind]
            self.line(f"{target} = [*unpack_from(f'>{{{count}}}{code}', buf, p)]")
            self.line(f"p += {least} * {count}" if least > 1 else f"p += {count}")
        else:
            self.loop(element, count, target, where)
        if row.nullable_in(self.version):
            self.indent -= 1

    def count(self, count: str) -> None:
        """In a decoder that counts, add the code that counts array elements or tagged fields, and
        refuses a message that has more than ``most`` of both together. ``count`` is the variable
        with their number."""
        if self.counts:
            self.line(f"left -= {count}")
            self.line("if left < 0: raise_too_many_elements(most)")

    def loop(self, element: Field, count: str, target: str, where: str) -> None:
        items, item = self.name("a"), self.name("v")
        self.line(f"{target} = {items} = []")
        self.line(f"for _ in range({count}):")
        self.indent += 1
        if element.kind == "struct" and not element.nullable_in(self.version):
            assert element.struct is not None
            item = self.struct(element.struct, f"{where}[]")
        else:
            self.value(element, item, f"{where}[]")
        self.flush()
        self.line(f"{items}.append({item})")
        if self.in_steps:
            self.line("yield")
        self.indent -= 1

    def tags(self, target: str, tagged: dict[int, tuple[str, Field]], where: str) -> None:
        """Add the code that reads the tagged section.

        Known fields go into their slots, and unknown fields into a dict.
        """
        self.flush()
        count = self.name("n")
        self.line(f"{target}.unknown_tagged_fields = NO_TAGS")
        self.line(f"{count} = buf[p]")
        self.line("p += 1")
        self.line(f"if {count}:")
        self.indent += 1
        tag, size, stop, unknown = (self.name(prefix) for prefix in ("t", "s", "e", "x"))
        self.line(f"if {count} > 127: {count}, p = long_uvarint(buf, p, {count})")
        self.line(
            f"if {count} * 2 > end - p: raise_bad_count({where + ' tags'!r}, {count}, end - p)"
        )
        self.line(f"if {count} > {wire.MAX_TAGGED_FIELDS}: raise_too_many_tags({where!r}, {count})")
        self.count(count)
        self.line(f"{unknown} = {{}}")
        self.line(f"for _ in range({count}):")
        self.indent += 1
        self.line(f"{tag}, p = read_uvarint(buf, p)")
        self.line(f"{size}, p = read_uvarint(buf, p)")
        self.line(f"{stop} = p + {size}")
        self.line(f"if {stop} > end: raise_bad_length({where + ' tag'!r}, {size}, end - p)")
        word = "if"
        for number, (name, row) in sorted(tagged.items()):
            self.line(f"{word} {tag} == {number}:")
            self.indent += 1
            self.value(row, f"{target}.{slot_name(name, row)}", f"{where}.{name}")
            self.flush()
            message = f"raise_bad_size({f'{where}.{name}'!r}, {size}, p - {stop} + {size})"
            self.line(f"if p != {stop}: {message}")
            self.indent -= 1
            word = "elif"
        if tagged:
            self.line("else:")
            self.indent += 1
        self.line(f"{unknown}[{tag}] = bytes(buf[p:{stop}])")
        self.line(f"p = {stop}")
        self.indent -= 2 if tagged else 1
        self.line(f"if {unknown}: {target}.unknown_tagged_fields = {unknown}")
        self.indent -= 1
