"""The connector's warnings before and after a program configures logging."""

import io
import logging
import re
import sys

import pytest

import pyspark_klog.client
import pyspark_klog.spark
from pyspark_klog.log_fallback import LOGGER, install_fallback_handler

_LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} level=WARNING logger=pyspark_klog\.some\.part "
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _root(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """A root as Spark's Python has it, without handlers: on the real one pytest has some."""
    root = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging.getLogger(LOGGER), "parent", root)
    return root


def _warn(words: str) -> None:
    logging.getLogger("pyspark_klog.some.part").warning("%s", words)


def test_a_warning_has_time_level_and_logger(capsys: Capture) -> None:
    _warn("as it is")
    assert re.fullmatch(_LINE + "as it is\n", capsys.readouterr().err)


def test_a_configuration_that_comes_later_wins(_root: logging.Logger, capsys: Capture) -> None:
    _warn("before")
    users = io.StringIO()
    _root.addHandler(logging.StreamHandler(users))  # as logging.basicConfig does
    _warn("after")
    assert users.getvalue() == "after\n"
    assert re.fullmatch(_LINE + "before\n", capsys.readouterr().err)


@pytest.mark.parametrize("name", [LOGGER, "pyspark_klog.some.part"])
def test_a_handler_of_klogs_own_logger_wins(
    name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger(name)
    users = io.StringIO()
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, logging.StreamHandler(users)])
    _warn("to the user")
    assert (users.getvalue(), capsys.readouterr().err) == ("to the user\n", "")


def test_a_logger_that_is_cut_off_from_the_root_is_still_heard(
    _root: logging.Logger, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _root.addHandler(logging.NullHandler())
    monkeypatch.setattr(logging.getLogger(LOGGER), "propagate", False)
    _warn("not for the root")
    assert re.fullmatch(_LINE + "not for the root\n", capsys.readouterr().err)


def test_a_null_handler_silences(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger(LOGGER)
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, logging.NullHandler()])
    _warn("unheard")
    assert capsys.readouterr().err == ""


def test_every_part_of_the_connector_has_it_once(capsys: Capture) -> None:
    assert pyspark_klog.client and pyspark_klog.spark
    install_fallback_handler()
    _warn("once")
    assert capsys.readouterr().err.count("once") == 1


def test_a_process_without_stderr_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        _warn("nowhere")
