"""The check of plain words: which sentences of which texts it refuses."""

from pathlib import Path

import pytest

from tools.plain_words.check import AllowedSentence, check_plain_words, refused_sentences
from tools.plain_words.finished import ALLOWED, FINISHED
from tools.plain_words.rules import only_points_elsewhere, refusals, sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Of an answer: two calls cost more than one copy.",
        "It is closed then.",
        "Those of the log are newer.",
        "None if the topic is unknown.",
        "Not for followers.",
        "As they were sent.",
        "The same, separated by commas.",
        "One that waits.",
        "This is done once.",
        "Who reads waits.",
    ],
)
def test_a_sentence_without_a_subject_is_refused(sentence: str) -> None:
    assert "begin with the subject" in list(refusals(sentence))


@pytest.mark.parametrize(
    "sentence",
    [
        "Brokers are told of the topic.",
        "The file is read anew.",
        "Close the socket, whoever holds it.",
        "The broker is in another life.",
        "The controller's picture of its cluster.",
        "Root of this room.",
        "The rooms of the broker.",
        "A timer: who asks gets it.",
        "Each broker knows who leads.",
        "Answers all who wait.",
    ],
)
def test_a_word_of_the_dialect_is_refused(sentence: str) -> None:
    assert len(list(refusals(sentence))) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "Return the offset that follows the last record.",
        "The same partition has another leader now.",
        "These partitions have no leader.",
        "As usual, the leader answers first.",
        "The user who runs the broker owns the files.",
        "The segment has room for one more index entry.",
        "X is closed when the session ends.",
        "Italian letters take two bytes.",
    ],
)
def test_a_plain_sentence_passes(sentence: str) -> None:
    assert list(refusals(sentence)) == []


def test_names_in_backticks_are_nouns_whatever_they_spell() -> None:
    assert list(sentences("`told` is set, e.g. by X. :class:`It` returns.")) == [
        "X is set, e.g. by X.",
        "X returns.",
    ]


@pytest.mark.parametrize("docstring", ["See LogManager.", "As `append`.", "Uses :func:`read`."])
def test_a_docstring_that_only_points_elsewhere_is_refused(docstring: str) -> None:
    assert only_points_elsewhere(docstring)
    assert not only_points_elsewhere(f"{docstring} The offset is exclusive.")


PROGRAM = '''\
"""It begins the file."""

import logging

KEPT = 1  # It is kept.

# The first line of a comment.
#
# It has a second paragraph:
# - Of a list.
OFFSETS = ()  # type: ignore[assignment]
"""As `KEPT`."""


def run(parser, count):
    """Run the program.

    Nothing is returned.
    """
    logging.info("whoever asks for %d", count)
    parser.add_argument("--all", help="Also the old ones.")
    parser.add_argument("--told", metavar="whoever waits")
    raise ValueError(f"{count} topics were " "told")
'''


def test_comments_docstrings_messages_and_help_are_checked() -> None:
    found = [(each.line, each.sentence) for each in refused_sentences("run.py", PROGRAM)]
    assert sorted(found) == [
        (1, "It begins the file."),
        (5, "It is kept."),
        (9, "It has a second paragraph:"),
        (10, "Of a list."),
        (12, "As `KEPT`."),
        (18, "Nothing is returned."),
        (20, "whoever asks for %d"),
        (21, "Also the old ones."),
        (23, "X topics were told"),
    ]


DOCUMENT = """\
# Who should read it anew

Start the broker. It
listens at once.

```
It is code.
```

1. Of the topics
2. The topics

| It | told |
|---|---|
"""


def test_paragraphs_and_list_items_of_a_document_are_checked() -> None:
    found = [(each.line, each.sentence) for each in refused_sentences("page.md", DOCUMENT)]
    assert found == [(3, "It listens at once."), (10, "Of the topics")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one refused sentence in `log` and one in `docs`."""
    (tmp_path / "log" / "read").mkdir(parents=True)
    (tmp_path / "log" / "read" / "reader.py").write_text("# It reads.\n")
    (tmp_path / "log" / "log.py").write_text("# A log.\n")
    (tmp_path / "docs" / "decisions").mkdir(parents=True)
    (tmp_path / "docs" / "decisions" / "0001-log.md").write_text("It was decided.\n")
    (tmp_path / "docs" / "log.md").write_text("It logs.\n")
    return tmp_path


def test_only_finished_packages_are_checked(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_plain_words([], [], [], checkout) == 0
    assert check_plain_words([], ["log/log.py"], [], checkout) == 0
    capsys.readouterr()
    assert check_plain_words([], ["log"], [], checkout) == 1
    assert capsys.readouterr().out.splitlines() == [
        "log/read/reader.py:1: begin with the subject: It reads.",
        "checked 1 path: 1 fault",
    ]
    assert check_plain_words(["docs"], [], [], checkout) == 1
    assert "docs/decisions" not in capsys.readouterr().out


def test_a_finished_path_must_exist(checkout: Path) -> None:
    assert check_plain_words([], ["log/append"], [], checkout) == 1


def test_an_allowed_sentence_passes_while_it_exists_and_has_a_reason(checkout: Path) -> None:
    allowed = AllowedSentence("log/read/reader.py", "It reads.", "the name of a song")
    assert check_plain_words([], ["log"], [allowed], checkout) == 0
    assert check_plain_words([], ["log"], [allowed._replace(reason=" ")], checkout) == 1
    elsewhere = allowed._replace(path="log/log.py")
    assert check_plain_words([], ["log"], [allowed, elsewhere], checkout) == 1
    assert check_plain_words(["log/log.py"], ["log"], [allowed], checkout) == 0


def test_finished_packages_are_plain() -> None:
    assert check_plain_words([], FINISHED, ALLOWED) == 0
