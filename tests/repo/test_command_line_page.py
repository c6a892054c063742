"""docs/command-line.md has every command, and the `klog` examples of all pages can be called."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from klog_broker.cli.commands import COMMANDS, command
from tests.support.repo.documents import ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\$ klog (.*)$", PAGE, re.MULTILINE)
OTHER_EXAMPLES = [
    pytest.param(example, id=f"{path.name}: {example}")
    for path in sorted((ROOT / "docs").glob("*.md"))
    for language, block in re.findall(
        r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S
    )
    for example in re.findall(r"^klog (.*)$", block, re.MULTILINE)
    if path.name != "command-line.md" and not language
]
ELSEWHERE = {"broker", "dump-log", "verify", "sinks", "lake"}
"""Commands that have a page of their own."""


def leaves(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from leaves(found, *path, name)
        else:
            yield (*path, name), found


def test_every_command_has_an_example() -> None:
    assert {name for name in COMMANDS if f"`klog {name}`" not in PAGE} == set()
    here = [" ".join(path) for path, _ in leaves(command) if path[0] not in ELSEWHERE]
    shown = [name for name in here if any(each.startswith(name) for each in EXAMPLES)]
    # The page describes these commands in a sentence, without an example.
    assert set(here) - set(shown) == {"completion", "configs list", "transactions find-hanging"}


@pytest.mark.parametrize("example", [*EXAMPLES, *OTHER_EXAMPLES])
def test_an_example_can_be_called(example: str) -> None:
    words = shlex.split(example, comments=True)
    context = click.Context(command)
    found: click.Command = command
    while isinstance(found, click.Group):
        inner = found.get_command(context, words.pop(0))
        assert inner is not None
        found = inner
    found.make_context("klog", words)


def test_options_that_are_named_exist() -> None:
    known = {option for _, each in leaves(command) for p in each.params for option in p.opts}
    known |= {"--help", "--version"}
    assert set(re.findall(r"(--[a-z][a-z-]+)", PAGE)) - known == set()


def test_the_image_is_small_and_loads_no_fonts() -> None:
    picture = ROOT / "docs" / "images" / "klog-commands.svg"
    text = picture.read_text(encoding="utf-8")
    assert len(text) < 60_000
    assert "@font-face" not in text
