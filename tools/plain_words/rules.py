"""The rules: which sentences and docstrings are refused, and what to write instead."""

import re
from collections.abc import Iterator

_NO_SUBJECT = re.compile(
    r"""
    (Of | What | Who | Whoever | Whose | Whatever | Whichever | It | They | That | Those | Nor
        | None | Nobody | Nothing | Also | Else | Behind | Meanwhile | Otherwise | Besides
        | Therefore)\b
    | As\ (it | they | what | that | those | said | before | with | in | for | above)\b
    | Not\ (what | that | this | those | of | a | an | the | for | by | in | as)\b
    | The\ (same | other | others | one | ones)\b(?!\ [a-z]+)
    | One\ (that | of)\b
    | But\ for\b
    | (This | These | Such)\ (is | are | was | were | has | have | does | do | can | could | may
        | must | goes | go | comes | come | stays | stay | holds | hold | says | ends)\b
    """,
    re.VERBOSE,
)
_POINTER = re.compile(r"(See|As|Uses|Like)\s+(:\w+:)?`{0,2}[\w./:`()-]+`{0,2}[.;]?")

_WITHOUT_NOUN = (
    "again all alone also and are as asked asks at back by but each finds for forgets from has how"
    " instead is keeps know known knows not notes of one only or out prove say says see sees show"
    " shows so tell tells than that them then they those to was were when where with"
)
"""Words after which "who" does not refer to a noun."""

_REFUSED_WORDS = tuple(
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (r"\btold\b", "name the request or the metadata image that carried the news"),
        (r"\banew\b", 'say "again"'),
        (r"\bwhoever\b", "name the caller, the client, the producer ..."),
        (r"\banother life\b", 'say "session", "registration" or "broker epoch"'),
        (r"\bpictures?\b", 'say "controller context", or "chart" for a drawing'),
        (
            r"\b(rooms|(this|these|that|each|every|another|other|same|own|whole) room)\b",
            'say "package" or "module"',
        ),
        (
            rf"(^|[^\w\s`'\")]\s+|\b({'|'.join(_WITHOUT_NOUN.split())})\s+)who\b",
            'put the noun before "who"',
        ),
    )
)
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+")
_QUOTED = re.compile(r":\w+:`[^`]*`|`+[^`]*`+")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a paragraph, with "X" for each name in backticks."""
    for sentence in _SENTENCE_END.split(_QUOTED.sub("X", text)):
        if re.search(r"[A-Za-z]{2}", sentence):
            yield sentence


def refusals(sentence: str) -> Iterator[str]:
    """Advice for each rule that refuses the sentence; nothing for a plain sentence."""
    if _NO_SUBJECT.match(sentence):
        yield "begin with the subject"
    for pattern, advice in _REFUSED_WORDS:
        if pattern.search(sentence):
            yield advice


def only_points_elsewhere(docstring: str) -> bool:
    """Whether a docstring is only "See X", "As X", "Uses X" or "Like X"."""
    return _POINTER.fullmatch(docstring) is not None
