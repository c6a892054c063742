"""Checks folders and files, and reports the sentences that the rules refuse."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.plain_words.rules import only_points_elsewhere, refusals, sentences
from tools.plain_words.texts import Kind, texts_of_code, texts_of_document

ROOT = Path(__file__).resolve().parents[2]


class AllowedSentence(NamedTuple):
    """A sentence that stays although a rule refuses it."""

    path: str
    sentence: str  # as the check prints it
    reason: str


class RefusedSentence(NamedTuple):
    """A sentence that a rule refuses."""

    path: str
    line: int  # where its paragraph begins
    sentence: str
    advice: str


def refused_sentences(path: str, source: str) -> Iterator[RefusedSentence]:
    """The refused sentences of a Python or Markdown file."""
    texts = texts_of_code(source) if path.endswith(".py") else texts_of_document(source)
    for kind, line, text in texts:
        if kind is Kind.DOCSTRING and only_points_elsewhere(text):
            advice = "write what the function does, or leave the docstring out"
            yield RefusedSentence(path, line, text, advice)
            continue
        for sentence in sentences(text):
            if found := "; ".join(refusals(sentence)):
                yield RefusedSentence(path, line, sentence, found)


def check_plain_words(
    arguments: Sequence[str],
    finished: Sequence[str],
    allowed: Sequence[AllowedSentence],
    root: Path = ROOT,
) -> int:
    """Print the refused sentences of ``arguments``, or else of ``finished``; return the exit code.

    The exit code is 1 if there is a refused sentence, a path that does not exist, or an allowed
    sentence without a reason. Without ``arguments``, each allowed sentence must also exist.
    """
    unused = {(each.path, each.sentence) for each in allowed}
    permitted = frozenset(unused)
    faults = [
        f"{each.path}: allowed without a reason: {each.sentence}"
        for each in allowed
        if not each.reason.strip()
    ]
    paths = arguments or finished
    for path in paths:
        if not (root / path).exists():
            faults.append(f"{path}: no such file or folder")
        for file in _files(root, path):
            for each in refused_sentences(file, (root / file).read_text(encoding="utf-8")):
                unused.discard((each.path, each.sentence))
                if (each.path, each.sentence) not in permitted:
                    faults.append(f"{each.path}:{each.line}: {each.advice}: {each.sentence}")
    if not arguments:
        faults += [f"{path}: allowed, but not there: {text}" for path, text in sorted(unused)]
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    paths_text = "1 path" if len(paths) == 1 else f"{len(paths)} paths"
    faults_text = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    sys.stdout.write(f"checked {paths_text}: {faults_text}\n")
    return 1 if faults else 0


def _files(root: Path, path: str) -> list[str]:
    """Python and Markdown files at or below ``path``; decision records keep their text."""
    start = root / path
    found = [start] if start.is_file() else sorted(start.rglob("*"))
    names = [each.relative_to(root).as_posix() for each in found if each.suffix in {".py", ".md"}]
    return [each for each in names if not each.startswith("docs/decisions/")]
