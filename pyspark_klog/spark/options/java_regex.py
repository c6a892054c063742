"""Java's regular expressions for subscribePattern, translated into Python's. Pure.

Patterns are matched against topic names, which are ASCII: every character class becomes a set of
ASCII characters, so that intersections, properties and case can be computed here. Constructs that
Python's `re` cannot express are refused, such as \\X, \\b{g}, lookbehind of varying width, and a
reference to a group that has not begun.
"""

import re
import unicodedata

from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.java_characters import ASCII, POSIX, WORD, property_set

_ESCAPED_CLASSES: dict[str, frozenset[str]] = {
    "d": POSIX["Digit"],
    "w": WORD,
    "s": POSIX["Space"],
    "h": POSIX["Blank"],
    "v": frozenset("\n\x0b\f\r"),
}
_ESCAPED_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ASSERTIONS = {"b": r"\b", "B": r"\B", "A": r"\A", "G": r"\A", "z": r"\Z", "Z": r"(?=\n?\Z)"}
_LINE_BREAK = r"(?:\r\n|[\n\x0b\f\r])"
_GROUP_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_REPEAT = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_FLAGS = re.compile(r"([idmsuxU]*)(?:-([idmsuxU]*))?([:)])")
_HEX = "0123456789abcdefABCDEF"


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile Java's ``pattern`` to a Python pattern that has the same matches in topic names.

    :raises OptionError: if Java refuses the pattern, or klog cannot translate it
    """
    translation = _Translation(pattern)
    translated = translation.run()
    if not translation.has_references:
        # Python 3.11's `re` has a fault with capturing groups in possessive quantifiers and atomic
        # groups, and without references no group needs to capture: translate without captures.
        translated = _Translation(pattern, captures=False).run()
    elif translation.is_possessive:
        raise OptionError(
            f"subscribePattern is {pattern!r}, which has a reference to a group and a "
            "possessive quantifier or an atomic group: klog cannot translate both together from "
            "Java's regular expressions; write it in another way, or list the topics with subscribe"
        )
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionError(
            f"subscribePattern is {pattern!r}, which klog cannot translate from Java's regular "
            f"expressions: {error}; write it in another way, or list the topics with subscribe"
        ) from None


class _Translation:
    """Translates one of Java's patterns to Python's syntax, in one pass. ``_at`` is the index of
    the next character."""

    def __init__(self, text: str, *, captures: bool = True) -> None:
        self.has_references = False
        self.is_possessive = False
        self._captures = captures
        self._text = text
        self._at = 0
        self._flags: set[str] = set()
        self._groups = 0

    def run(self) -> str:
        result = self._alternatives()
        if self._at < len(self._text):
            raise self._error("a closing ) without an opening one")
        return result

    # --- reading the pattern's characters --------------------------------------------------------
    def _peek(self, ahead: int = 0) -> str:
        """The character ``ahead`` places after the current one; empty at the end."""
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _take(self, what: str) -> bool:
        if not self._text.startswith(what, self._at):
            return False
        self._at += len(what)
        return True

    def _next(self, expected: str) -> str:
        character = self._peek()
        if not character:
            raise self._error(f"the pattern ends where {expected} is expected")
        self._at += 1
        return character

    def _error(self, problem: str) -> OptionError:
        return OptionError(
            f"subscribePattern is {self._text!r}, which klog cannot use at position {self._at}: "
            f"{problem}; expected a regular expression in Java's syntax, as in orders-.*"
        )

    def _skip_comments(self) -> None:
        while "x" in self._flags and (self._peek() == "#" or self._peek().isspace()):
            if self._peek() == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                self._at += 1

    # --- alternatives and groups -----------------------------------------------------------------
    def _alternatives(self) -> str:
        """Translate the alternatives of a group, up to the group's end; flags that are set in the
        group hold until then."""
        flags = set(self._flags)
        parts: list[str] = []
        while True:
            self._skip_comments()
            if self._peek() in ("", ")"):
                break
            if self._take("|"):
                parts.append("|")
            else:
                atom = self._atom()
                parts.append(atom + self._quantifier() if atom else "")
        self._flags = flags
        return "".join(parts)

    def _quantifier(self) -> str:
        self._skip_comments()
        found = _REPEAT.match(self._text, self._at)
        if found:
            self._at = found.end()
            result = found[0]
        elif self._peek() and self._peek() in "*+?":
            result = self._next("a quantifier")
        else:
            return ""
        if self._peek() and self._peek() in "?+":
            result += self._next("a quantifier")
            self.is_possessive |= result.endswith("+")
        return result

    def _atom(self) -> str:
        character = self._next("a character")
        if character in "*+?":
            raise self._error(f"nothing for {character} to repeat")
        if character == "{":
            raise self._error("{ has no number, or nothing to repeat; write \\{ for the character")
        if character == "(":
            return self._group()
        if character == "[":
            return _as_python(self._class())
        if character == "\\":
            return self._escape()
        return character if character in ".^$" else self._literal(character)

    def _literal(self, character: str) -> str:
        both = self._closed({character})
        return re.escape(character) if len(both) == 1 else _as_python(both)

    def _closed(self, characters: frozenset[str] | set[str]) -> frozenset[str]:
        """Return ``characters``; if the pattern's flag i (ignore case) is on, each ASCII letter of
        them in upper and lower case."""
        if "i" not in self._flags:
            return frozenset(characters)
        ascii_ones = ASCII.intersection(characters)
        return frozenset(characters).union(
            *({c.lower(), c.upper()} for c in ascii_ones),
        )

    def _group(self) -> str:
        opening = "(" if self._captures else "(?:"
        if self._take("?"):
            if self._take("<") and self._peek() not in ("=", "!"):
                found = _GROUP_NAME.match(self._text, self._at)
                if not found or self._text[found.end() : found.end() + 1] != ">":
                    raise self._error("a group's name is expected, as in (?<name>...)")
                self._at = found.end() + 1
                opening = f"(?P<{found[0]}>" if self._captures else "(?:"
                self._groups += 1
            elif self._text[self._at - 1] == "<":
                opening = f"(?<{self._next('= or !')}"
            elif self._peek() and self._peek() in ":=!>":
                opening = f"(?{self._next('a kind of group')}"
                self.is_possessive |= opening == "(?>"
            else:
                return self._flag_group()
        else:
            self._groups += 1
        return self._finish_group(opening)

    def _finish_group(self, opening: str) -> str:
        content = self._alternatives()
        if not self._take(")"):
            raise self._error("a group is not closed; expected )")
        return f"{opening}{content})"

    def _flag_group(self) -> str:
        found = _FLAGS.match(self._text, self._at)
        if not found:
            raise self._error("(? is not followed by one of Java's kinds of groups")
        self._at = found.end()
        before = set(self._flags)
        self._flags = (self._flags | set(found[1])) - set(found[2] or "")
        if found[3] == ")":
            return ""
        content = self._finish_group("(?:")
        self._flags = before
        return content

    # --- escapes ---------------------------------------------------------------------------------
    def _escape(self) -> str:
        if self._take("Q"):
            return self._quoted()
        if self._take("R"):
            return _LINE_BREAK
        if self._take("k<"):
            end = self._text.find(">", self._at)
            name, self._at = self._text[self._at : end], end + 1
            if end < 0 or not _GROUP_NAME.fullmatch(name):
                raise self._error("a group's name is expected, as in \\k<name>")
            return self._reference(f"(?P={name})")
        character = self._peek()
        if character and character in "123456789":
            return self._numbered_reference()
        if character in _ASSERTIONS and character:
            if self._take("b{"):
                raise self._error("\\b{...} has no counterpart in Python")
            self._at += 1
            return _ASSERTIONS[character]
        found = self._escaped_class()
        return _as_python(found) if found is not None else self._literal(self._escaped_character())

    def _quoted(self) -> str:
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        if not quoted:
            return ""
        # In Java a quantifier after \Q...\E applies to the last quoted character. So it does in the
        # result, whose characters form no group.
        return "".join(self._literal(character) for character in quoted)

    def _numbered_reference(self) -> str:
        number = int(self._next("a digit"))
        while self._peek() and self._peek() in "0123456789":
            if number * 10 + int(self._peek()) > self._groups:
                break
            number = number * 10 + int(self._next("a digit"))
        return self._reference(f"(?:\\{number})")

    def _reference(self, reference: str) -> str:
        self.has_references = True
        return f"(?i:{reference})" if "i" in self._flags else reference

    def _escaped_class(self) -> frozenset[str] | None:
        """The characters of a class like ``\\d`` or ``\\p{Alpha}``, read after its backslash; None
        if the escape is no class."""
        character = self._peek()
        negated = character.isupper()
        if character.lower() == "p":
            self._at += 1
            found = self._closed(self._property())
        elif character and character.lower() in _ESCAPED_CLASSES:
            self._at += 1
            found = _ESCAPED_CLASSES[character.lower()]
        else:
            return None
        return ASCII - found if negated else found

    def _property(self) -> frozenset[str]:
        if self._take("{"):
            end = self._text.find("}", self._at)
            if end < 0:
                raise self._error("a property is not closed; expected }")
            name, self._at = self._text[self._at : end], end + 1
        else:
            name = self._next("a property")
        found = property_set(name)
        if found is None:
            raise self._error(f"klog does not know the property {name!r}")
        return found

    def _escaped_character(self) -> str:
        character = self._next("an escaped character")
        if character in _ESCAPED_CHARACTERS:
            return _ESCAPED_CHARACTERS[character]
        if character == "0":
            found = re.compile("[0-3]?[0-7]{1,2}").match(self._text, self._at)
            return self._code(found[0] if found else "", 8)
        if character == "x" and self._take("{"):
            end = self._text.find("}", self._at)
            code = self._code(self._text[self._at : max(end, 0)], 16)
            self._at += 1
            return code
        if character in ("x", "u"):
            width = 2 if character == "x" else 4
            digits = self._text[self._at : self._at + width]
            return self._code(digits if len(digits) == width else "", 16)
        if character == "c":
            return chr(ord(self._next("a control character")) ^ 64)
        if character == "N" and self._take("{"):
            end = self._text.find("}", self._at)
            name, self._at = self._text[self._at : max(end, 0)], end + 1
            try:
                return unicodedata.lookup(name)
            except KeyError:
                raise self._error(f"no character is called {name!r}") from None
        if character.isascii() and character.isalpha():
            raise self._error(f"Java does not have \\{character}, or Python cannot express it")
        return character

    def _code(self, digits: str, base: int) -> str:
        if not digits or not all(d in _HEX for d in digits) or int(digits, base) > 0x10FFFF:
            raise self._error("the octal or hexadecimal number of a character is expected")
        self._at += len(digits)
        return chr(int(digits, base))

    # --- character classes -----------------------------------------------------------------------
    def _class(self) -> frozenset[str]:
        """The set of the characters in a class ``[...]``, read after its opening bracket; consumes
        the closing bracket."""
        negated = self._take("^")
        found = self._union(first=True)
        while self._take("&&"):
            if self._peek() == "&":
                raise self._error("&&& in a class; write \\& for the character")
            found &= self._union(first=False)
        if not self._take("]"):
            raise self._error("a class is not closed; expected ]")
        return ASCII - found if negated else found

    def _union(self, *, first: bool) -> frozenset[str]:
        """The union of a class's adjacent members, up to ``]`` or ``&&``."""
        found: frozenset[str] | None = None
        while True:
            self._skip_comments()
            if not self._peek():
                raise self._error("a class is not closed; expected ]")
            is_end = self._peek() == "]" and not (first and found is None)
            if is_end or self._text.startswith("&&", self._at):
                break
            found = self._member() | (found or frozenset())
        if found is None:
            raise self._error("a class has nothing before or after &&")
        return found

    def _member(self) -> frozenset[str]:
        """The characters of one member of ``[...]``: a nested class, a quoted text, a class such as
        ``\\d``, a character, or a range."""
        if self._take("["):
            return self._class()
        if self._take("\\Q"):
            end = self._text.find("\\E", self._at)
            if end < 0:
                raise self._error("\\Q is not closed; expected \\E")
            quoted, self._at = self._text[self._at : end], end + 2
            return self._closed(frozenset(quoted))
        if self._peek() == "\\":
            self._at += 1
            known = self._escaped_class()
            if known is not None:
                return known
            low = self._escaped_character()
        else:
            low = self._next("a character")
        if self._peek() != "-" or self._peek(1) in ("]", "[", ""):
            return self._closed({low})
        self._at += 1
        self._skip_comments()
        high = self._escaped_character() if self._take("\\") else self._next("a character")
        if high < low:
            raise self._error(f"the range {low}-{high} is backwards")
        return self._closed({c for c in ASCII if low <= c <= high})


def _as_python(characters: frozenset[str]) -> str:
    """A character class in the syntax of Python's `re`, with exactly these characters."""
    if not characters:
        return "(?!)"
    return "[" + "".join(re.escape(c) for c in sorted(characters)) + "]"
