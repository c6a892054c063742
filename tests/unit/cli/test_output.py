"""Tables, progress bars and completion of the `klog` command."""

import importlib
import io
import subprocess
import sys
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli import commands
from klog_broker.cli.common import progress, tables

ROWS: list[tables.Row] = [("a", 1000, None), ("bb", 7, "-1")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def as_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """stdout, as a terminal with colours. No fixture: pytest puts its own there for the call."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    return terminal


class TestTables:
    def test_numbers_are_aligned_to_the_right(self, capsys: pytest.CaptureFixture[str]) -> None:
        tables.print_table(("name", "size", "of"), ROWS)
        assert capsys.readouterr().out == "NAME  SIZE  OF\na     1000  -\nbb       7  -1\n"

    def test_nothing_is_shown_that_a_terminal_obeys(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tables.print_table(("client",), [("\x1b[2J\nevil",)])
        assert capsys.readouterr().out == "CLIENT\n\\x1b[2J\\nevil\n"
        terminal = as_terminal(monkeypatch)
        tables.print_table(("client",), [("\x1b[2Jevil",)])
        assert "\\x1b[2Jevil" in terminal.getvalue()
        assert "\x1b[2J" not in terminal.getvalue()

    def test_without_rows(self, capsys: pytest.CaptureFixture[str]) -> None:
        tables.print_table(("a", "b"), [])
        assert capsys.readouterr().out == "A  B\n"

    def test_a_terminal_without_rich_gets_plain_text(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = as_terminal(monkeypatch)
        monkeypatch.setitem(sys.modules, "rich.console", None)
        tables.print_table(("a",), [("[b]",)])
        assert terminal.getvalue() == "A\n[b]\n"

    def test_a_dumb_terminal_gets_plain_text(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = as_terminal(monkeypatch)
        monkeypatch.setenv("TERM", "dumb")
        tables.print_table(("a",), [("b",)])
        assert terminal.getvalue() == "A\nb\n"

    def test_a_terminal_with_rich_gets_borders_and_colours(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        terminal = as_terminal(monkeypatch)
        tables.print_table(("name", "size"), [("[bold]x", 5), ("y", 1000)])
        out = terminal.getvalue()
        assert "\x1b[" in out
        assert "│ [bold]x │    5 │" in out
        assert "NAME" not in out

    def test_no_color_takes_the_colours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = as_terminal(monkeypatch)
        monkeypatch.setenv("NO_COLOR", "1")
        tables.print_table(("name",), [("x",)])
        out = terminal.getvalue()
        assert "│ x    │" in out
        assert "\x1b[3" not in out and "\x1b[1;3" not in out

    def test_a_cell_that_is_too_wide_is_folded_and_not_cut(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        terminal = as_terminal(monkeypatch)
        monkeypatch.setenv("COLUMNS", "20")
        tables.print_table(("name",), [("x" * 40,)])
        assert terminal.getvalue().count("x") == 40


class TestProgress:
    def test_nothing_is_shown_to_nobody(self, capsys: pytest.CaptureFixture[str]) -> None:
        with progress.progress_bar("reading", 10) as advance:
            advance(5)
        assert capsys.readouterr() == ("", "")

    def test_a_terminal_sees_how_far_it_is(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", Terminal())
        with progress.progress_bar("[reading]", 10) as advance:
            advance(4)
            advance(6)
        assert isinstance(sys.stderr, Terminal)
        assert "[reading]" in sys.stderr.getvalue()
        assert "10/10" in sys.stderr.getvalue()
        assert capsys.readouterr().out == ""

    def test_without_rich_nothing_is_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setitem(sys.modules, "rich.console", None)
        with progress.progress_bar("reading") as advance:
            advance(4)
        assert isinstance(sys.stderr, Terminal)
        assert sys.stderr.getvalue() == ""


def completed(words: str, incomplete: str = "") -> list[str]:
    """Return the completions that bash gets for these words."""
    count = len(words.split())
    result: Result = CliRunner().invoke(
        commands.command,
        prog_name="klog",
        env={
            "_KLOG_COMPLETE": "bash_complete",
            "COMP_WORDS": f"{words} {incomplete}",
            "COMP_CWORD": str(count),
        },
    )
    return [line.partition(",")[2] for line in result.output.splitlines()]


class TestCompletion:
    def test_the_commands_without_importing_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(name: str) -> ModuleType:
            raise AssertionError(name)

        monkeypatch.setattr(importlib, "import_module", refuse)
        assert completed("klog") == list(commands.COMMANDS)
        assert completed("klog", "du") == ["dump-log"]
        assert "--version" in completed("klog", "--")

    def test_what_belongs_to_a_command(self) -> None:
        assert completed("klog topics", "de") == ["delete", "describe"]
        assert completed("klog topics list", "--comm") == ["--command-config"]
        assert completed("klog broker --log-level", "w") == ["warning"]

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_script_of_each_shell(self, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
        # As on a machine without that shell.
        monkeypatch.setenv("PATH", "")
        result = CliRunner().invoke(commands.command, ["completion", shell], prog_name="klog")
        assert result.exit_code == 0
        assert f"_KLOG_COMPLETE={shell}_complete" in result.output

    def test_bash_reads_its_script(self) -> None:
        script = CliRunner().invoke(commands.command, ["completion", "bash"]).output
        check = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert (check.returncode, check.stderr) == (0, "")

    def test_another_shell(self) -> None:
        assert CliRunner().invoke(commands.command, ["completion", "csh"]).exit_code == 2
