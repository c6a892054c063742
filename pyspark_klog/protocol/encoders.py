"""Generates the source of an encoder for one message class in one version.

The source is one function, as in decoders.py. One ``pack`` call writes consecutive fields of fixed
size, and in versions that are not flexible also the length of the value after them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from pyspark_klog.protocol import wire
from pyspark_klog.protocol.decoders import FIXED
from pyspark_klog.protocol.errors import UnsupportedVersion
from pyspark_klog.protocol.message import UNSET, Field, Struct, slot_name

Encoder = Callable[[Any, bytearray], None]

StepEncoder = Callable[[Any, bytearray], Iterator[None]]


def make_encoder(cls: type[Struct], version: int, flexible: bool) -> Encoder:
    """Return a function (message, bytearray) that appends the encoded message to the bytearray."""
    source, names = _EncoderSource(version, flexible).write(cls)
    exec(compile(source, f"<{cls.__name__} v{version} encoder>", "exec"), names)
    encoder: Encoder = names["encode"]
    return encoder


def make_step_encoder(cls: type[Struct], version: int, flexible: bool) -> StepEncoder:
    """Return a generator function that appends the encoded message to a bytearray and yields after
    each array element that is not a number.
    """
    source, names = _EncoderSource(version, flexible, in_steps=True).write(cls)
    exec(compile(source, f"<{cls.__name__} v{version} encoder in steps>", "exec"), names)
    encoder: StepEncoder = names["encode"]
    return encoder


def _unsupported(where: str, value: object, version: int) -> None:
    raise UnsupportedVersion(
        f"{where}: version {version} has no such field, and its value {value!r} would be lost; "
        "use a version that has it, or the default"
    )


class _EncoderSource:
    """Builds the source of an encoder line by line.

    ``pending`` are the fixed-size fields that the next ``pack`` call writes together.
    """

    def __init__(self, version: int, flexible: bool, *, in_steps: bool = False) -> None:
        self.version = version
        self.flexible = flexible
        self.in_steps = in_steps
        self.lines: list[str] = []
        self.indent = 1
        self.pending: list[tuple[str, str]] = []
        self.counter = 0
        self.out = "out"
        self.names: dict[str, Any] = {
            "pack": struct.pack,
            "uvarint": wire.uvarint,
            "raise_too_long": wire.raise_too_long,
            "unsupported": _unsupported,
            "put_records": wire.put_records,
            "put_tags": wire.put_tags,
        }

    def write(self, cls: type[Struct]) -> tuple[str, dict[str, Any]]:
        self.struct(cls, "m", cls.__name__)
        self.flush()
        body = "\n".join(self.lines)
        # ``yield from ()`` makes the function a generator even if the message has no array.
        first = " yield from ()\n" if self.in_steps else ""
        return f"def encode(m, out):\n{first}{body}\n return None\n", self.names

    # -- helpers that add lines to the generated source

    def line(self, text: str) -> None:
        self.lines.append(" " * self.indent + text)

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def bind(self, prefix: str, value: object) -> str:
        name = self.name(prefix)
        self.names[name] = value
        return name

    def flush(self) -> None:
        """Add one ``pack`` call that writes all fields in ``pending``."""
        if self.pending:
            layout = struct.Struct(">" + "".join(code for code, _ in self.pending))
            values = ", ".join(value for _, value in self.pending)
            self.line(f"{self.out} += {self.bind('pack', layout.pack)}({values})")
            self.pending = []

    # -- methods that generate the code that writes values

    def struct(self, cls: type[Struct], source: str, where: str) -> None:
        tagged: list[tuple[int, str, Field]] = []
        for name, row in cls.__fields__.items():
            slot = f"{source}.{slot_name(name, row)}"
            if not row.in_version(self.version):
                if not row.ignorable:
                    self.refuse(row, slot, f"{where}.{name}")
            elif row.tag is not None:
                tagged.append((row.tag, name, row))
            else:
                self.value(row, slot, f"{where}.{name}")
        if self.flexible:
            self.tags(source, sorted(tagged, key=lambda entry: entry[0]), where)

    def differs(self, row: Field, slot: str) -> str:
        """Return the source of a condition that is true if the slot's value is not the default."""
        if row.is_lazy:
            assert row.struct is not None
            return f"{slot} is not None and {slot} != {self.bind('D', row.struct())}"
        if row.default is None:
            return f"{slot} is not None"
        if row.kind == "array":
            return f"{slot} or {slot} is None"
        default = row.struct() if row.default is UNSET and row.struct else row.default
        return f"{slot} != {self.bind('D', default)}"

    def refuse(self, row: Field, slot: str, where: str) -> None:
        """Add a check for a field that this version lacks: only the default value is allowed."""
        self.flush()
        self.line(f"if {self.differs(row, slot)}:")
        self.line(f" unsupported({where!r}, {slot}, {self.version})")

    def value(self, row: Field, source: str, where: str) -> None:
        if row.kind == "uuid":
            self.pending.append(("16s", f"{source}.bytes"))
        elif row.kind in FIXED:
            self.pending.append((FIXED[row.kind], source))
        elif row.kind == "struct":
            self.struct_value(row, source, where)
        elif row.kind == "array":
            self.array(row, source, where)
        else:
            self.sized(row, source, where)

    def struct_value(self, row: Field, source: str, where: str) -> None:
        assert row.struct is not None
        if row.nullable_in(self.version):
            self.flush()
            value = self.name("v")
            self.line(f"{value} = {source}")
            self.line(f"if {value} is None:")
            self.line(f" {self.out}.append(255)")
            self.line("else:")
            self.indent += 1
            self.pending.append(("b", "1"))
            self.struct(row.struct, value, where)
            self.flush()
            self.indent -= 1
            return
        value = self.name("v")
        self.line(f"{value} = {source}")
        self.struct(row.struct, value, where)

    def length(self, code: str, length: str) -> None:
        """Add the code that writes a length or count from the variable ``length``; -1 is null."""
        if self.flexible:
            self.flush()
            out = self.out
            self.line(f"if {length} < 127: {out}.append({length} + 1)")
            self.line(f"else: {out} += uvarint({length} + 1)")
        else:
            self.pending.append((code, length))
            self.flush()

    def sized(self, row: Field, source: str, where: str) -> None:
        """Add the code that writes a string, bytes or a record set."""
        value, length = self.name("v"), self.name("n")
        nullable = row.nullable_in(self.version)
        if nullable:
            self.line(f"if {source} is None: {value} = b''; {length} = -1")
            self.line("else:")
            self.indent += 1
        if row.kind == "string":
            self.line(f"{value} = {source}.encode()")
            self.line(f"{length} = len({value})")
            self.line(
                f"if {length} > {wire.MAX_STRING_BYTES}: raise_too_long({where!r}, {length})",
            )
        else:
            self.line(f"{value} = {source}")
            self.line(f"{length} = len({value})")
        if nullable:
            self.indent -= 1
        self.length("h" if row.kind == "string" else "i", length)
        if row.kind == "records":
            self.line(f"put_records({self.out}, {value})")
        else:
            self.line(f"{self.out} += {value}")

    def array(self, row: Field, source: str, where: str) -> None:
        element = row.element
        assert element is not None
        values, count = self.name("v"), self.name("n")
        self.line(f"{values} = {source}")
        if row.nullable_in(self.version):
            self.line(f"if {values} is None: {values} = (); {count} = -1")
            self.line(f"else: {count} = len({values})")
        else:
            self.line(f"{count} = len({values})")
        self.length("i", count)
        if element.kind in FIXED and element.kind != "uuid":
            code = FIXED[element.kind]
            self.line(
                f"if {count} > 0: {self.out} += pack(f'>{{{count}}}{code}', *{values})",
            )
            return
        item = self.name("o")
        self.line(f"for {item} in {values}:")
        self.indent += 1
        if element.kind == "struct" and not element.nullable_in(self.version):
            assert element.struct is not None
            self.struct(element.struct, item, f"{where}[]")
        else:
            self.value(element, item, f"{where}[]")
        self.flush()
        self.line("yield" if self.in_steps else "pass")
        self.indent -= 1

    def tags(self, source: str, tagged: list[tuple[int, str, Field]], where: str) -> None:
        self.flush()
        unknown = self.name("x")
        self.line(f"{unknown} = {source}.unknown_tagged_fields")
        if not tagged:
            self.line(f"if {unknown}: put_tags({self.out}, {{}}, {unknown})")
            self.line(f"else: {self.out}.append(0)")
            return
        known, outer = self.name("k"), self.out
        different = [
            self.differs(row, f"{source}.{slot_name(name, row)}") for _, name, row in tagged
        ]
        # Most messages have no tagged field to write, and skip the generated code that follows.
        self.line(f"if {unknown} or {' or '.join(f'({each})' for each in different)}:")
        self.indent += 1
        self.line(f"{known} = {{}}")
        for (tag, name, row), differs in zip(tagged, different, strict=True):
            self.line(f"if {differs}:")
            self.indent += 1
            self.out = self.name("b")
            self.line(f"{self.out} = {known}[{tag}] = bytearray()")
            self.value(row, f"{source}.{slot_name(name, row)}", f"{where}.{name}")
            self.flush()
            self.out = outer
            self.indent -= 1
        self.line(f"put_tags({outer}, {known}, {unknown})")
        self.indent -= 1
        self.line(f"else: {outer}.append(0)")
