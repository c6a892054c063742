"""``sasl.jaas.config``: one login module with its options, in the syntax of Java's login files.

    org.apache.kafka.common.security.plain.PlainLoginModule required
      username="alice" password="...";

Read as Kafka's own class JaasConfig reads it: quotes are ' or ", with Java's escapes; names and
values without quotes begin with a letter, _ or $; a comment is the text from /* to */, or from any
other slash to the end of the line; a semicolon ends the login module. No value is ever part of an
error message, because it could be the password.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_klog.security.errors import SettingError
from pyspark_klog.security.secret import Secret

FLAGS = ("required", "requisite", "sufficient", "optional")
EXAMPLE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="...";'
)

_SHADED = "kafkashaded."
_SHOWN = ("username", "password", "client", "scope", "extension_", "unsecuredLogin", "ssl.")
"""An error message shows the name of a login module's option only if the name begins with one of
these texts: any other word could be a part of a password that has no quotes."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_OCTAL = "01234567"


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: its class name and its options.

    The class name has no leading ``kafkashaded.``, a prefix that Databricks puts before the names
    of Kafka's classes.
    """

    class_name: str
    options: Mapping[str, Secret] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        """The name of the class without its package."""
        return self.class_name.rpartition(".")[2]


class _Token(NamedTuple):
    kind: str
    """The kind of the token: ``word``, ``quoted``, ``number``, or the character itself if the token
    is any other single character."""
    text: str


def read_jaas(config: Secret, name: str = "sasl.jaas.config") -> LoginModule:
    """Return the login module in ``config``; error messages call the setting ``name``.

    :raises SettingError: unless ``config`` is exactly one login module. The text says what is wrong
        and never shows a value.
    """
    tokens = _tokens(config.reveal(), name)
    modules = [_module(token, tokens, name) for token in tokens]
    if not modules:
        raise SettingError(f"{name} is empty; expected a login module, as in {EXAMPLE}")
    if len(modules) > 1:
        raise SettingError(
            f"{name} has {len(modules)} login modules; expected one, as in {EXAMPLE}"
        )
    return modules[0]


def _module(first: _Token, tokens: Iterator[_Token], name: str) -> LoginModule:
    if first.kind not in ("word", "quoted"):
        raise SettingError(
            f"{name} has no login module where one should begin, at the start or after a "
            f"semicolon; expected {EXAMPLE}"
        )
    class_name = first.text.removeprefix(_SHADED)
    flag = next(tokens, None)
    if flag is None or flag.text.lower() not in FLAGS:
        raise SettingError(
            f"{name} has no control flag after the login module; expected one of "
            f"{', '.join(FLAGS)}, as in {EXAMPLE}"
        )
    options: dict[str, Secret] = {}
    for token in tokens:
        if token.kind == ";":
            return LoginModule(class_name, options)
        key = _key(token, name)
        options[key] = _value(key, tokens, name)
    raise SettingError(f"{name} does not end with a semicolon; expected {EXAMPLE}")


def _key(token: _Token, name: str) -> str:
    if token.kind not in ("word", "quoted"):
        raise SettingError(
            f"{name} has something that is no option where one should begin: is there a quote "
            f'within a value, or a value without quotes? expected name="value" pairs, as in '
            f"{EXAMPLE}"
        )
    return token.text


def _value(key: str, tokens: Iterator[_Token], name: str) -> Secret:
    equals = next(tokens, None)
    if equals is None or equals.kind != "=":
        raise SettingError(
            f'{name} has an option without "=" and a value; expected name="value" pairs, as in '
            f"{EXAMPLE}"
        )
    value = next(tokens, None)
    if value is None or value.kind not in ("word", "quoted"):
        # The option's name may be part of a password without quotes, so the error shows only known
        # names.
        shown = key if key.startswith(_SHOWN) else "password"
        raise SettingError(
            f"{name} has no value that could be read for an option: put it in double quotes, as in "
            f'{shown}="..."'
        )
    return Secret(value.text)


def _tokens(text: str, name: str) -> Iterator[_Token]:
    """Split ``text`` into words, quoted texts, numbers and single characters, in the same way as
    java.io.StreamTokenizer."""
    at, end = 0, len(text)
    while at < end:
        char = text[at]
        if char <= " ":
            at += 1
        elif char == "/":
            at = _after_comment(text, at)
        elif char in "\"'":
            quoted, at = _quoted(text, at, name)
            yield _Token("quoted", quoted)
        elif _is_letter(char) or char in "0123456789.-":
            begin = at
            while at < end and (_is_letter(text[at]) or text[at] in "0123456789.-"):
                at += 1
            word = text[begin:at]
            yield _Token("number" if word[0] in "0123456789.-" else "word", word)
        else:
            yield _Token(char, char)
            at += 1


def _is_letter(char: str) -> bool:
    return (char.isascii() and char.isalpha()) or char in "_$" or char >= "\xa0"


def _after_comment(text: str, at: int) -> int:
    """Return the position after the comment that begins at ``at``.

    A comment is the text from /* to */, or from any other slash to the end of the line.
    """
    if text.startswith("/*", at):
        close = text.find("*/", at + 2)
        return len(text) if close < 0 else close + 2
    newline = text.find("\n", at)
    return len(text) if newline < 0 else newline


def _quoted(text: str, at: int, name: str) -> tuple[str, int]:
    """Return the quoted text at ``at`` without its quotes, and the position after it."""
    quote, parts, end = text[at], [], len(text)
    at += 1
    while at < end and text[at] not in (quote, "\n", "\r"):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        at += 1
        digits = 0
        # An octal escape has up to three digits, but only two if the first is above 3, because the
        # largest escape is \377.
        most = 3 if text[at : at + 1] <= "3" else 2
        while digits < most and text[at + digits : at + digits + 1] in (*_OCTAL,):
            digits += 1
        if digits:
            parts.append(chr(int(text[at : at + digits], 8)))
            at += digits
        elif at < end:
            parts.append(_ESCAPES.get(text[at], text[at]))
            at += 1
    if at >= end or text[at] != quote:
        raise SettingError(
            f"{name} has a quote that is not closed; a value stands between double quotes, and a "
            'double quote or backslash within it is written \\" or \\\\'
        )
    return "".join(parts), at + 1
