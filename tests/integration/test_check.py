"""`python -m pyspark_klog check` on machines that are made of scripts, and on this one."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkAttributeError

import pyspark_klog
from pyspark_klog import __version__, testing
from pyspark_klog.__main__ import main
from pyspark_klog.errors import KlogError
from tests.support.repo.fake_pythons import fake_java, fake_program, fake_python

_GOOD: dict[str, Any] = {
    "version": [3, 11, 7],
    "klog": __version__,
    "pyspark": "4.3.0",
    "pyarrow": "21.0.0",
    "numba": "0.61.0",
    "kernels_are_cached": True,
    "protobuf": "6.33.0",
    "connect_missing": [],
}

Check = Callable[..., list[str]]


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The driver's Python, which has everything; with Java 17, and nothing in the environment."""
    own = fake_python(tmp_path / "own" / "python", **_GOOD)
    java = fake_java(tmp_path / "java" / "bin" / "java", "17.0.15")
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "executable", own)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(Path(java).parents[1]))
    monkeypatch.setenv("PYSPARK_PYTHON", own)
    return own


@pytest.fixture
def check(python: str, capsys: pytest.CaptureFixture[str]) -> Check:
    """The lines; what is found wrong and the exit code go together."""

    def run(*arguments: str) -> list[str]:
        code = main(["check", *arguments])
        lines = capsys.readouterr().out.splitlines()
        assert code == any(line.startswith("FAIL ") for line in lines)
        assert all(re.match(r"(ok   |note |FAIL ) \S", line) for line in lines)
        return lines

    return run


def _wrong(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("ok ")]


def test_all_is_well(check: Check, python: str) -> None:
    assert check() == [
        f"ok    driver: Python 3.11.7, {python}",
        "ok    driver: Spark 4.3.0",
        f"ok    driver: pyspark_klog {__version__}",
        "ok    driver: pyarrow 21.0.0",
        "ok    driver: numba 0.61.0, klog's kernels are compiled",
        "ok    driver: grpcio, for foreachBatch under Spark Connect",
        "ok    driver: protobuf 6.33.0, for transformWithState",
        f"ok    workers: the driver's Python (PYSPARK_PYTHON={python})",
        check()[-1],
    ]
    assert check()[-1].startswith("ok    Java: 17, ")


# --- the likeliest failures: the Python of the workers -------------------------------------------
def test_pyspark_python_is_not_set(
    check: Check, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake_python(
        tmp_path / "bin" / "python3",
        version=[3, 11, 2],
        klog_error="No module named 'pyspark_klog'",
        pyspark="4.3.0",
        pyarrow_error="[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed",
        protobuf="6.33.0",
        connect_missing=[],
    )
    monkeypatch.delenv("PYSPARK_PYTHON")
    lines = check()
    assert (
        f"ok    workers: Python 3.11.2, {path} (python3 of PATH, as PYSPARK_PYTHON is not set)"
        in lines
    )
    assert _wrong(lines) == [
        "FAIL  workers: pyspark_klog cannot be imported (No module named 'pyspark_klog'); expected "
        f"{__version__}: install it there, as by pip install pyspark-klog, or name a Python that "
        "has it",
        "FAIL  workers: pyarrow: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed: "
        "install it there",
        "FAIL  workers: numba is not installed; expected it, since klog reads and writes records "
        "with it: install it there, as by pip install pyspark-klog",
    ]


def test_another_version(
    check: Check, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fake_python(tmp_path / "python3.13", **(_GOOD | {"version": [3, 13, 1]}))
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    assert _wrong(check()) == [
        f"FAIL  workers: Python 3.13.1, {other} (PYSPARK_PYTHON={other}); expected 3.11, as the "
        f"driver's: set PYSPARK_PYTHON={python} before the session begins"
    ]


def test_no_such_file(
    check: Check, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = str(tmp_path / "nowhere" / "python")
    monkeypatch.setenv("PYSPARK_PYTHON", missing)
    assert _wrong(check()) == [
        f"FAIL  workers: PYSPARK_PYTHON={missing}, and there is no such program; expected a Python "
        f"that has klog: set PYSPARK_PYTHON={python} before the session begins"
    ]


def test_a_program_that_is_no_python(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jupyter = fake_program(tmp_path / "bin" / "jupyter", "echo 'no such option: -c' >&2; exit 2")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    [line] = _wrong(check())
    assert line.startswith(
        f"FAIL  look-up of formats: {jupyter} (PYSPARK_DRIVER_PYTHON=jupyter) does not run as "
        "Python: it ended with code 2: no such option: -c; expected a Python that has klog: set "
        "PYSPARK_DRIVER_PYTHON="
    )


def test_a_path_with_a_blank(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", fake_python(tmp_path / "my own" / "python", **_GOOD))
    [line] = _wrong(check())
    assert "has a blank in it; expected a path without" in line


def test_options_of_spark_submit_go_before_the_environment(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.pyspark.python  /no/python\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    [line] = _wrong(check())
    assert line.startswith("FAIL  workers of spark-submit: spark.pyspark.python=/no/python, and")


def test_another_release_of_klog(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fake_python(tmp_path / "python", **(_GOOD | {"klog": "0.0.1"}))
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    assert _wrong(check()) == [
        f"FAIL  workers: pyspark_klog 0.0.1; expected {__version__}, as the driver's: install the "
        "same release"
    ]


def test_kernels_that_are_not_compiled_yet(check: Check, python: str) -> None:
    fake_python(Path(python), **(_GOOD | {"kernels_are_cached": False}))
    [line] = _wrong(check())
    assert line.startswith("note  driver: numba 0.61.0; klog's kernels are not compiled yet")
    assert line.endswith("python -m pyspark_klog.warm compiles them now")


def test_packages_that_only_some_jobs_need(check: Check, python: str) -> None:
    missing = {"protobuf": None, "connect_missing": ["grpcio", "grpcio-status"]}
    fake_python(Path(python), **(_GOOD | missing))
    assert _wrong(check()) == [
        "note  driver: without grpcio, grpcio-status, foreachBatch under Spark Connect fails: pip "
        "install grpcio grpcio-status where the server runs",
        "note  driver: without protobuf, transformWithState fails: pip install protobuf on every "
        "executor",
    ]


# --- Spark and Java ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"pyspark": "3.5.4"}, "FAIL  driver: Spark 3.5.4; expected 4.0 or later"),
        ({"pyspark": "4.1.0"}, "note  driver: Spark 4.1.0; limits of micro-batches need 4.2"),
        (
            {"pyspark": None, "pyspark_error": "No module named 'pyspark'"},
            "FAIL  driver: pyspark cannot be imported (No module named 'pyspark'); expected 4.0",
        ),
    ],
)
def test_sparks_release(check: Check, python: str, found: dict[str, Any], words: str) -> None:
    fake_python(Path(python), **(_GOOD | found))
    [line] = _wrong(check())
    assert line.startswith(words)


def test_java(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java" / "bin" / "java"
    fake_java(java, "21.0.2")
    assert _wrong(check()) == []
    fake_java(java, "25")
    [line] = _wrong(check())
    assert line.startswith("note  Java: 25, ")
    fake_java(java, "1.8.0_412")
    [line] = _wrong(check())
    assert line.startswith(f"FAIL  Java: 8, {java} (JAVA_HOME={tmp_path}/java); expected 17 or 21")
    monkeypatch.delenv("JAVA_HOME")
    [line] = _wrong(check())
    assert line.startswith(
        "FAIL  Java: there is none (java of PATH, as JAVA_HOME is not set); expected Java 17 or 21"
    )


def test_a_connect_client_has_neither(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/python")
    [line] = check()
    assert line.startswith("note  SPARK_REMOTE=sc://host: a Spark Connect server runs klog")


# --- brokers -------------------------------------------------------------------------------------
def test_a_broker_that_answers(check: Check, klog_broker: testing.Broker) -> None:
    servers = klog_broker.bootstrap_servers
    lines = check("--bootstrap-servers", servers)[-2:]
    assert re.fullmatch(
        rf"ok    broker {servers}: connected, \d+ APIs \(ApiVersions\), \d+ ms", lines[0]
    )
    assert re.fullmatch(r"ok    cluster: id \S+, 1 brokers, \d+ ms", lines[1])


def test_brokers_that_do_not(
    check: Check, klog_broker: testing.Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("request.timeout.ms=500\n")
    servers = f"127.0.0.1:1,{klog_broker.bootstrap_servers}"
    lines = check("--bootstrap-servers", servers, "--command-config", str(config))
    [line] = _wrong(lines)
    assert line.startswith(
        "FAIL  broker 127.0.0.1:1: could not connect to 127.0.0.1:1: Connection refused; expected "
        "a listener of Kafka's protocol"
    )
    assert lines[-1].startswith("ok    cluster: ")
    assert caplog.messages == []


def test_settings_that_cannot_be(check: Check, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    [line] = _wrong(check("--bootstrap-server", "h:1", "--command-config", str(config)))
    assert line.startswith(f"FAIL  brokers: cannot read the configuration file {config}: No such")
    config.write_text("security.protocoll=SSL\n")
    [line] = _wrong(check("--bootstrap-server", "h:1", "--command-config", str(config)))
    assert line.startswith(
        "FAIL  brokers: security.protocoll is no setting of Kafka's clients; did"
    )


# --- the command ---------------------------------------------------------------------------------
def test_without_arguments_it_prints_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    words = " ".join(capsys.readouterr().out.split())  # Pythons differ in columns
    assert "check check what a job needs" in words


def test_this_machine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    main(["check"])
    lines = capsys.readouterr().out.splitlines()
    assert f"ok    driver: pyspark_klog {__version__}" in lines
    assert [line for line in lines if line.startswith("FAIL  driver")] == []


# --- register() ----------------------------------------------------------------------------------
class _Session:
    """The part of a session that register() uses; ``python`` None: a Connect client's."""

    def __init__(self, python: str | None) -> None:
        self._python = python
        self.registered: list[type] = []
        self.dataSource = self

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        if self._python is None:
            raise PySparkAttributeError("a Connect session has none")
        return SimpleNamespace(pythonExec=self._python)

    def register(self, source: type) -> None:
        self.registered.append(source)


def _register(python: str | None) -> _Session:
    session = _Session(python)
    pyspark_klog.register(cast(Any, session))
    assert session.registered == [pyspark_klog.DefaultSource]
    return session


def test_register_asks_nothing_of_the_drivers_own_python(
    python: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake_program(Path(python), "exit 1")
    _register(python)
    assert caplog.messages == []


def test_spark_3_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.setattr("pyspark.__version__", "3.5.4")
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    for use in (lambda: _register(None), lambda: pyspark_klog.batch_writer(**options)):
        with pytest.raises(KlogError) as caught:
            use()
        assert str(caught.value) == (
            "Spark 3.5.4 has no Python data sources; expected 4.0 or later: use a newer Spark, or "
            'Spark\'s own connector, format("kafka")'
        )
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(KlogError, match=r"^pyspark is not installed in this Python, .*\[spark\]"):
        pyspark_klog.batch_writer(**options)


def test_register_leaves_connect_clients_alone(python: str) -> None:
    _register(None)


def test_register_refuses_a_python_that_is_not_there(
    python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KlogError) as caught:
        _register("/no/python")
    assert str(caught.value) == (
        "Spark's workers run PYSPARK_PYTHON=/no/python, and there is no such program: set "
        f"PYSPARK_PYTHON={python} before the session begins; python -m pyspark_klog check looks at "
        "the rest"
    )
    monkeypatch.delenv("PYSPARK_PYTHON")
    with pytest.raises(KlogError, match="run python3 of PATH, as PYSPARK_PYTHON is not set, and"):
        _register("python3")


def test_register_refuses_another_version(python: str, tmp_path: Path) -> None:
    other = fake_python(tmp_path / "python", version=[3, 8, 1], klog=__version__)
    own = "{}.{}".format(*sys.version_info[:2])
    with pytest.raises(
        KlogError, match=rf"python, which is Python 3\.8\.1; expected {own}, as the"
    ):
        _register(other)


def test_register_warns_of_a_python_without_klog(
    python: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """--py-files may bring it."""
    version = list(sys.version_info[:3])
    other = fake_python(tmp_path / "python", version=version, klog_error="No module named 'p'")
    _register(other)
    [line] = caplog.messages
    assert (
        "which cannot import pyspark_klog (No module named 'p'): install it there, or set" in line
    )


def test_register_warns_of_what_does_not_answer(
    python: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _register(fake_program(tmp_path / "python", "exit 3"))
    [line] = caplog.messages
    assert "which does not answer as Python: it ended with code 3: it printed no versions" in line
