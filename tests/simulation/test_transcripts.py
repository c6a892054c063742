"""Consumer groups as dialogues that a person can review, compared with the transcripts' files."""

import os
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.simulation.group_transcript import GroupTalk

TRANSCRIPTS = Path(__file__).parent / "transcripts"
WRITE_VARIABLE = "KLOG_WRITE_TRANSCRIPTS"


def as_it_happens(text: str) -> str:
    """A transcript's commands and comments, with the outcome of each command indented below."""
    talk, lines = GroupTalk(), []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"    {outcome}" for outcome in talk.run(*line.split())]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("name", sorted(path.stem for path in TRANSCRIPTS.glob("*.txt")))
def test_a_group_does_as_its_transcript_says(name: str) -> None:
    path = TRANSCRIPTS / f"{name}.txt"
    written = path.read_text()
    happened = as_it_happens(written)
    if os.environ.get(WRITE_VARIABLE) == "1":
        path.write_text(happened)
        return
    diff = unified_diff(
        written.splitlines(), happened.splitlines(), "the transcript", "what happened", lineterm=""
    )
    assert written == happened, "\n".join([f"{path.name}:", *diff])


def test_a_word_that_is_no_command_is_refused() -> None:
    with pytest.raises(ValueError, match="no such command: jion"):
        as_it_happens("jion m1\n")
