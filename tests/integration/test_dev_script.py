"""`./dev`: the parts that it sets up or leaves alone, and its output, on a fake machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.repo.fake_machine import ROOT, Machine, make_machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return make_machine(tmp_path / "machine")


@pytest.fixture
def ready(machine: Machine) -> Machine:
    """A machine on which everything that `demo` needs has been set up."""
    machine.add_python()
    machine.add_java("jvm", "17")
    assert machine.dev("demo").returncode == 0
    machine.started()
    return machine


def pips(lines: list[str]) -> list[str]:
    return [line for line in lines if "-m pip install" in line]


def venvs(lines: list[str]) -> list[str]:
    return [line for line in lines if "-m venv" in line]


def test_without_a_verb_it_lists_them_and_an_unknown_one_is_refused(machine: Machine) -> None:
    helped = machine.dev()
    assert helped.returncode == 0
    verbs = ("demo", "test", "check", "bench", "simulate", "fuzz", "soak", "peers", "python")
    for verb in (*verbs, "broker"):
        assert f"  {verb} " in helped.stdout
    unknown = machine.dev("deno")
    assert unknown.returncode == 2
    assert "no verb 'deno'" in unknown.stderr
    assert unknown.stdout == ""


def test_the_first_run_sets_up_and_the_second_starts_nothing_but_the_command(
    machine: Machine,
) -> None:
    machine.add_python()
    first = machine.dev("python", "x.py")
    assert first.returncode == 0
    assert "dev: environment: making .venv with Python 3.11" in first.stderr
    lines = machine.started()
    assert len(venvs(lines)) == 1
    assert len(pips(lines)) == 1
    assert "-c constraints.txt" in pips(lines)[0]
    second = machine.dev("python", "x.py")
    assert second.returncode == 0
    assert second.stderr == ""
    assert machine.started() == ["python x.py"]


def test_arguments_folder_and_exit_status_are_the_commands_own(ready: Machine) -> None:
    ready.environment["FAKE_EXIT"] = "7"
    folder = ready.home / "some where"
    folder.mkdir()
    result = ready.dev("python", "a b", "", "*", cwd=folder)
    assert result.returncode == 7
    lines = result.stdout.splitlines()
    assert lines[0] == f"in {folder}"
    assert lines[1:4] == ["argument a b", "argument ", "argument *"]


@pytest.mark.parity("cluster: PYSPARK_PYTHON")
@pytest.mark.parametrize("place", ["plain", "with space", "with'quote", "with$dollar"])
def test_spark_gets_its_python_its_java_and_loopback(tmp_path: Path, place: str) -> None:
    machine = make_machine(tmp_path / "machine", place)
    machine.add_python()
    java = machine.add_java("jvm", "17")
    ran = machine.dev("demo")
    assert ran.returncode == 0, ran.stderr
    seen = dict(line.split("=", 1) for line in ran.stdout.splitlines() if "=" in line)
    assert seen["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert seen["JAVA_HOME"] == str(java)
    assert seen["PYSPARK_DRIVER_PYTHON"] == seen["PYSPARK_PYTHON"]
    # Spark looks for it so, without quotes.
    asked = subprocess.run(
        ["sh", "-c", f"command -v {seen['PYSPARK_PYTHON']}"],
        env={"PATH": seen["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.stdout.strip() == str(machine.checkout / ".venv" / "bin" / "python")


def test_programs_keep_their_compiled_modules_on_images_that_forbid_it(ready: Machine) -> None:
    ready.environment["PYTHONDONTWRITEBYTECODE"] = "1"
    assert "PYTHONDONTWRITEBYTECODE" not in ready.dev("python").stdout


def test_nothing_to_do_starts_neither_pip_nor_java(ready: Machine) -> None:
    assert ready.dev("demo").returncode == 0
    assert ready.started() == ["python -m examples.flights"]


@pytest.mark.parametrize("name", ["constraints.txt", "setup.py"])
def test_a_changed_input_installs_again_in_the_same_environment(ready: Machine, name: str) -> None:
    with (ready.checkout / name).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert ready.dev("python").returncode == 0
    lines = ready.started()
    assert len(pips(lines)) == 1
    assert venvs(lines) == []


def test_a_changed_kernel_is_compiled_again_and_nothing_else_is_done(ready: Machine) -> None:
    (ready.checkout / "pyspark_klog" / "records" / "kernels.py").write_text("x = 1\n")
    assert ready.dev("demo").returncode == 0
    assert ready.started() == [
        "python -m pyspark_klog.warm",
        "python -m klog_broker.warm",
        "python -m examples.flights",
    ]


def test_a_moved_checkout_is_set_up_again(ready: Machine) -> None:
    shutil.move(ready.checkout, ready.home / "elsewhere")
    shutil.move(ready.home / "elsewhere", ready.home / "a path" / "klog2")
    result = subprocess.run(
        ["sh", str(ready.home / "a path" / "klog2" / "dev"), "python"],
        env={"PATH": str(ready.bin)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0
    assert len(venvs(ready.started())) == 1


def test_a_venv_that_failed_halfway_is_made_again(machine: Machine) -> None:
    machine.add_python()
    machine.flag("venv-fails")
    failed = machine.dev("python")
    assert failed.returncode == 1
    assert "-m venv failed" in failed.stderr
    assert (machine.checkout / ".venv" / "bin" / "python").exists()
    leftover = machine.checkout / ".venv" / "bin" / "leftover"
    leftover.touch()
    machine.flag("venv-fails", False)
    machine.started()
    assert machine.dev("python").returncode == 0
    assert len(venvs(machine.started())) == 1
    assert not leftover.exists()


def test_a_failed_install_is_reported_with_its_reason_and_repeated(machine: Machine) -> None:
    machine.add_python()
    machine.flag("pip-fails")
    failed = machine.dev("python")
    assert failed.returncode == 1
    assert "no such package" in failed.stderr
    assert "dev: pip failed" in failed.stderr
    machine.flag("pip-fails", False)
    machine.started()
    assert machine.dev("python").returncode == 0
    lines = machine.started()
    assert venvs(lines) == []
    assert len(pips(lines)) == 1


def test_the_newest_supported_interpreter_is_chosen(machine: Machine) -> None:
    machine.add_python("python3.13", "3.13")
    machine.add_python("python3.11", "3.11")
    machine.add_python("python3", "3.15")
    machine.fake("python3.14", "#!/bin/sh\nexit 127\n")  # a shim with nothing behind it
    assert "with Python 3.13" in machine.dev("python").stderr


def test_klog_python_wins_and_an_unset_one_keeps_what_is_there(machine: Machine) -> None:
    machine.add_python("python3.13", "3.13")
    other = machine.add_python("my python", "3.12")
    machine.environment["KLOG_PYTHON"] = str(other)
    assert "with Python 3.12" in machine.dev("python").stderr
    del machine.environment["KLOG_PYTHON"]
    machine.started()
    assert machine.dev("python").stderr == ""
    machine.environment["KLOG_PYTHON"] = "python3.13"
    assert "with Python 3.13" in machine.dev("python").stderr


def test_an_unsupported_interpreter_is_refused_in_one_sentence(machine: Machine) -> None:
    machine.add_python("python3", "3.10")
    refused = machine.dev("python")
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "needs Python 3.11, 3.12, 3.13 or 3.14" in refused.stderr
    assert "python3 (3.10)" in refused.stderr
    machine.environment["KLOG_PYTHON"] = "no-such-python"
    refused = machine.dev("python")
    assert "KLOG_PYTHON=no-such-python: found: none" in refused.stderr


def test_two_at_once_set_up_once(machine: Machine) -> None:
    machine.add_python()
    machine.flag("hold-pip")
    first = machine.start("python")
    log = machine.home / "log"
    eventually(lambda: log.exists() and "-m pip install" in log.read_text(), what="pip's start")
    second = machine.start("python")
    assert second.stderr is not None
    assert "another ./dev is at the set-up" in second.stderr.readline()
    machine.flag("hold-pip", False)
    _, first_errors = first.communicate(timeout=60)
    _, rest_of_errors = second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0)
    assert "environment: ready" in first_errors
    assert rest_of_errors == ""
    assert len(pips(machine.started())) == 1


def test_without_flock_a_living_holder_is_awaited_and_a_dead_one_is_not(machine: Machine) -> None:
    machine.add_python()
    (machine.bin / "flock").unlink(missing_ok=True)
    dead = subprocess.Popen(["true"])
    dead.wait()
    lock = machine.checkout / ".dev" / "lock.d"
    lock.mkdir(parents=True)
    (lock / "pid").write_text(f"{dead.pid}\n", encoding="utf-8")
    machine.flag("hold-pip")
    first = machine.start("python")
    log = machine.home / "log"
    eventually(lambda: log.exists() and "-m pip install" in log.read_text(), what="pip's start")
    second = machine.start("python")
    assert second.stderr is not None
    assert f"another ./dev (process {first.pid})" in second.stderr.readline()
    machine.flag("hold-pip", False)
    _, first_errors = first.communicate(timeout=60)
    second.communicate(timeout=60)
    assert "removing the lock of a ./dev that has died" in first_errors
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(pips(machine.started())) == 1
    assert not lock.exists()


def test_a_missing_venv_module_comes_through_apt_after_an_update(machine: Machine) -> None:
    machine.add_python()
    machine.add_apt()
    machine.flag("has-venv", False)
    assert machine.dev("python").returncode == 0
    apt = [line for line in machine.started() if line.startswith("apt-get")]
    assert apt[0].startswith("apt-get update")
    assert apt[1].endswith("install -y -qq --no-install-recommends python3.11-venv")


def test_without_root_the_exact_command_is_printed(machine: Machine) -> None:
    machine.add_python()
    machine.add_apt(root=False)
    machine.flag("has-venv", False)
    refused = machine.dev("python")
    assert refused.returncode == 1
    assert (
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends python3.11-venv"
        in refused.stderr
    )
    assert [line for line in machine.started() if line.startswith("apt-get")] == []


def test_sudo_is_used_where_it_asks_no_password(machine: Machine) -> None:
    machine.add_python()
    machine.add_apt(root=False)
    machine.fake("sudo", '#!/bin/sh\n[ "$1" = -n ] || exit 1\nshift\nexec "$@"\n')
    machine.flag("has-venv", False)
    assert machine.dev("python").returncode == 0
    assert any("install" in line for line in machine.started() if line.startswith("apt-get"))


def test_a_stale_java_home_is_ignored_with_a_line(ready: Machine) -> None:
    ready.environment["JAVA_HOME"] = "/no/such/java"
    result = ready.dev("demo")
    assert result.returncode == 0
    assert "JAVA_HOME=/no/such/java is ignored" in result.stderr
    assert f"JAVA_HOME={ready.home / 'jvm'}" in result.stdout.splitlines()
    ready.started()
    assert "is ignored" in ready.dev("demo").stderr
    assert ready.started() == ["python -m examples.flights"]


def test_a_java_home_that_spark_supports_wins_and_another_release_does_not(ready: Machine) -> None:
    newer = ready.add_java("jdk21", "21", on_path=False)
    ready.environment["JAVA_HOME"] = str(newer)
    assert f"JAVA_HOME={newer}" in ready.dev("demo").stdout.splitlines()
    old = ready.add_java("jdk11", "11", on_path=False)
    ready.environment["JAVA_HOME"] = str(old)
    result = ready.dev("demo")
    assert f"JAVA_HOME={ready.home / 'jvm'}" in result.stdout.splitlines()
    assert f"JAVA_HOME={old} is ignored" in result.stderr


def test_the_broker_needs_no_java_and_keeps_the_pid(machine: Machine) -> None:
    machine.add_python()
    process = machine.start("broker", "--port", "0")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == f"klog {process.pid} broker --port 0\n"
    assert not any(line.startswith("java") for line in machine.started())


def test_a_full_disk_is_reported_before_anything_is_made(machine: Machine) -> None:
    machine.add_python()
    (machine.home / "free-kib").write_text("10240", encoding="utf-8")
    refused = machine.dev("python")
    assert refused.returncode == 1
    assert "MiB of disk space" in refused.stderr
    assert "10 MiB are free" in refused.stderr
    assert not (machine.checkout / ".venv").exists()


def test_without_a_package_manager_missing_tools_are_named(ready: Machine) -> None:
    refused = ready.dev("test")
    assert refused.returncode == 1
    assert "needs kcat" in refused.stderr
    assert "brew install kcat" in refused.stderr


def test_peers_fetch_their_jars_once_and_have_their_own_spark(ready: Machine) -> None:
    ready.add_maven()
    ready.flag("first-look-up-fails")
    first = ready.dev("peers", "oracle")
    assert first.returncode == 0, first.stderr
    fetched = [line for line in ready.started() if line.startswith("mvn")]
    asked_again = [line for line in fetched if " -U " in line]
    assert len(asked_again) == 8  # three Kafkas, four jars of Spark's connector, spark-avro
    assert len(fetched) == 16
    for folder in ("kafka-3.9.1", "kafka-4.3.1", "kafka-4.4.0", "spark-connector", "spark-avro"):
        assert list((ready.checkout / ".peers" / folder).glob("*.jar"))
    oldest, with_programs, newest = (
        {jar.name for jar in (ready.checkout / ".peers" / f"kafka-{release}").iterdir()}
        for release in ("3.9.1", "4.3.1", "4.4.0")
    )
    assert oldest == newest
    assert with_programs - oldest == {"kafka-streams.jar", "connect-file.jar"}
    constraints = (ready.checkout / ".dev" / "constraints-peers.txt").read_text()
    assert "pyspark==4.2.0\n" in constraints
    assert "pyspark==4.3.0" not in constraints
    second = ready.dev("peers", "oracle")
    assert second.stderr == ""
    assert ready.started() == ["python -m tests.support.repo.suite --peers oracle"]
    path = next(line for line in second.stdout.splitlines() if line.startswith("PATH="))
    assert str(ready.checkout / ".venv-peers" / "bin") in path


def test_the_papers_brokers_are_fetched_once_and_for_no_other_benchmark(ready: Machine) -> None:
    ready.add_maven()
    ready.add_apt()
    ready.add_unpacker()
    other = ready.dev("bench", "small")
    assert other.returncode == 0, other.stderr
    assert not list((ready.checkout / ".peers").glob("activemq*"))
    ready.started()
    first = ready.dev("bench", "paper", "--plot")
    assert first.returncode == 0, first.stderr
    assert "goes on without" not in first.stderr
    peers = ready.checkout / ".peers"
    assert {jar.name for jar in (peers / "activemq-5.4.3").iterdir()} == {
        "peers.jar",
        "activemq-core.jar",
    }
    assert (peers / "activemq-6.3.1" / "activemq-kahadb-store.jar").exists()
    assert (peers / "perf-test-2.22.1" / "perf-test.jar").exists()
    assert not [line for line in ready.started() if line.startswith("apt-get install")]
    erl = peers / "rabbitmq" / "usr" / "lib" / "erlang" / "bin" / "erl"
    launched = subprocess.run([erl], capture_output=True, text=True, check=True)
    assert launched.stdout.strip() == str(peers / "rabbitmq" / "usr" / "lib" / "erlang")
    second = ready.dev("bench", "paper")
    assert second.stderr == ""
    assert ready.started() == ["python -m benchmarks paper"]


def test_the_paper_is_measured_without_the_brokers_that_cannot_be_had(ready: Machine) -> None:
    ready.add_maven()
    ready.flag("no-activemq")
    ran = ready.dev("bench", "paper")
    assert ran.returncode == 0, ran.stderr
    assert "bench paper goes on without ActiveMQ 5.4.3 (Maven could not fetch it)" in ran.stderr
    assert "RabbitMQ (it comes from packages of Debian or Ubuntu)" in ran.stderr
    assert ready.started()[-1] == "python -m benchmarks paper"
    ready.flag("no-activemq", False)
    ready.add_apt()
    ready.add_unpacker()
    again = ready.dev("bench", "paper")
    assert again.returncode == 0, again.stderr
    assert "goes on without" not in again.stderr


def test_the_oldest_spark_has_an_environment_and_kernels_of_its_own(machine: Machine) -> None:
    machine.add_python()
    machine.add_java("jvm", "17")
    first = machine.dev("test", "--spark", "4.0", "-x")
    assert first.returncode == 0, first.stderr
    (pip,) = pips(machine.started())
    assert "-c constraints-oldest.txt" in pip
    assert pip.endswith("-e .[spark] pytest pytest-timeout hypothesis chispa kafka-python")
    assert not (machine.checkout / ".venv").exists()
    second = machine.dev("test", "--spark", "4.0", "-x")
    assert second.stderr == ""
    assert machine.started() == ["python -m tests.support.repo.suite --oldest -x"]
    seen = dict(line.split("=", 1) for line in second.stdout.splitlines() if "=" in line)
    home = machine.checkout / ".venv-oldest"
    assert seen["NUMBA_CACHE_DIR"] == str(home / "kernels")
    assert str(home / "bin") in seen["PATH"] + seen["PYSPARK_PYTHON"]
    with (machine.checkout / "constraints-oldest.txt").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert machine.dev("test", "--spark", "4.0").returncode == 0
    assert len(pips(machine.started())) == 1


def test_another_release_than_the_oldest_is_refused(machine: Machine) -> None:
    machine.add_python()
    for arguments in (("--spark",), ("--spark", "4.2")):
        refused = machine.dev("test", *arguments)
        assert refused.returncode == 1
        assert "test --spark takes 4.0" in refused.stderr
    assert machine.started() == []


def test_a_soak_runs_in_the_environment_of_the_tests(ready: Machine) -> None:
    assert ready.dev("soak", "connector", "--minutes", "1").returncode == 0
    assert ready.started() == ["python -m tests.soak connector --minutes 1"]


def test_a_simulation_and_the_fuzzer_need_no_java(machine: Machine) -> None:
    machine.add_python()
    assert machine.dev("simulate", "--seed", "7", "-v").returncode == 0
    assert machine.started()[-1] == "python -m tests.simulation --seed 7 -v"
    assert machine.dev("fuzz", "codecs", "--inputs", "9").returncode == 0
    assert machine.started() == ["python -m tests.fuzz codecs --inputs 9"]


def test_a_check_can_leave_the_unit_tests_to_test_as_ci_does(ready: Machine) -> None:
    unit = "python -m pytest -q tests/unit tests/repo"
    ready.dev("check")
    whole = ready.started()
    assert unit in whole
    left_out = ready.dev("check", "--without", "unit")
    assert ready.started() == [line for line in whole if line != unit]
    assert "unit tests, file map of the documents: left out" in left_out.stderr
    for arguments in (("--without",), ("--without", "types"), ("tests/unit",)):
        refused = ready.dev("check", *arguments)
        assert "check takes --without unit, or nothing" in refused.stderr
        assert ready.started() == []
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert ci[-2:] == ["./dev check --without unit", "./dev test"]


def test_it_is_plain_sh_by_the_shells_own_check() -> None:
    for script in ("dev", ".ci/run"):
        for shell in filter(None, (shutil.which("dash"), shutil.which("bash"), "/bin/sh")):
            checked = subprocess.run([shell, "-n", str(ROOT / script)], check=False)
            assert checked.returncode == 0
