"""Finds the texts of a file: comments, docstrings, messages, help, paragraphs of a document."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

_LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_HELP_ARGUMENTS = {"help", "description", "epilog"}
_ERROR_CLASS = re.compile(r"(Error|Exception|Warning)$")
_PRAGMA = re.compile(r"(type:|noqa|pragma|mypy:|ruff:|shellcheck|fmt:|!/)")
_LIST_ITEM = re.compile(r"\s*([-*+]|\d+\.)\s+")
_CODE_BLOCK = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.DOTALL | re.MULTILINE)


class Kind(Enum):
    """Where a text stands."""

    COMMENT = "comment"
    DOCSTRING = "docstring"
    MESSAGE = "message"
    DOCUMENT = "document"


class Text(NamedTuple):
    """A paragraph, a list item or a message, on one line and without its indentation."""

    kind: Kind
    line: int
    text: str


def texts_of_code(source: str) -> Iterator[Text]:
    """Comments, docstrings and messages of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield from _paragraphs(Kind.DOCSTRING, node.lineno, node.value.value)
        elif isinstance(node, ast.Call):
            for message in _messages(node):
                yield Text(Kind.MESSAGE, node.lineno, " ".join(message.split()))
    for line, comment in _comments(source):
        yield from _paragraphs(Kind.COMMENT, line, comment)


def texts_of_document(source: str) -> Iterator[Text]:
    """Paragraphs and list items of a Markdown file, without code, tables, headings and HTML."""
    without_code = _CODE_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), source)
    for text in _paragraphs(Kind.DOCUMENT, 1, without_code):
        if not text.text.startswith(("|", "#", "<")):
            yield text


def _paragraphs(kind: Kind, first: int, text: str) -> Iterator[Text]:
    """Split at empty lines and before list items; the texts of pragmas are left out."""
    start, lines = first, list[str]()
    for number, line in enumerate([*text.split("\n"), ""], first):
        item = _LIST_ITEM.match(line)
        if lines and (item or not line.strip()):
            joined = " ".join(" ".join(lines).split())
            if not _PRAGMA.match(joined):
                yield Text(kind, start, joined)
            lines = []
        if line.strip():
            start = start if lines else number
            lines.append(line[item.end() :] if item else line)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """First line and text of each comment; comments on consecutive lines are one."""
    start, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        follows_code = not token.line.lstrip().startswith("#")
        if lines and (follows_code or line != last + 1):
            yield start, "\n".join(lines)
            lines = []
        start = start if lines else line
        lines.append(token.string.lstrip("#:"))
        last = 0 if follows_code else line
    if lines:
        yield start, "\n".join(lines)


def _messages(call: ast.Call) -> Iterator[str]:
    """Literal texts of a log call, of an error that is made, and of an option's help."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    is_log_call = isinstance(function, ast.Attribute) and name in _LOG_METHODS
    arguments: list[ast.expr] = []
    if is_log_call or _ERROR_CLASS.search(name):
        arguments += call.args
    arguments += [each.value for each in call.keywords if each.arg in _HELP_ARGUMENTS]
    for argument in arguments:
        yield from (text for text in _literals(argument) if " " in text)


def _literals(node: ast.AST) -> Iterator[str]:
    """Texts of the string literals in an expression; "X" stands for a formatted value."""
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "X" for each in node.values)
        yield "".join(str(part) for part in parts)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _literals(child)
