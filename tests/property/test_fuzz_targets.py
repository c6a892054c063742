"""A little of `./dev fuzz`: each target takes some inputs; the fuzzer finds what it is to find."""

import os
import signal
import time
from random import Random

import pytest

from tests.fuzz import runner
from tests.fuzz.__main__ import main
from tests.fuzz.runner import again, run, run_beside
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS, load_target

INPUTS = {"frames": 500, "requests": 400, "produce": 200, "recovery": 60, "http": 300}


@pytest.mark.parametrize("name", TARGETS)
def test_each_target_takes_its_inputs(name: str) -> None:
    found = run(load_target(name), 0, range(INPUTS.get(name, 1_000)))
    assert not found, "\n".join(line for each in found for line in each.lines())


@pytest.mark.parametrize("name", TARGETS)
def test_an_input_is_the_same_whatever_came_before(name: str) -> None:
    one, other = load_target(name), load_target(name)
    one.renew()
    other.renew()
    one.check(one.make(Random("first")))
    inputs = [each.make(Random(f"5 {name} 77")) for each in (one, other)]
    assert inputs[0] == inputs[1]


class Faulty(Target):
    """Fails at inputs with a certain byte, and at the third of a block."""

    name = "faulty"
    block = 10

    def renew(self) -> None:
        self._fed = 0

    def make(self, random: Random) -> bytes:
        return random.randbytes(50)

    def check(self, data: bytes) -> None:
        self._fed += 1
        if b"\x07" in data:
            raise ZeroDivisionError("seven")
        if data and data[0] == 9 and self._fed > 2:
            raise KeyError("nine")

    def most_bytes(self, data: bytes) -> int:
        return 1 << 20


class Greedy(Faulty):
    """Takes memory, and keeps none."""

    memory_sample = 1

    def check(self, data: bytes) -> None:
        if data[:1] > b"\xf0":
            bytearray(2 << 20)


def test_a_finding_is_made_smaller_and_can_be_fed_again() -> None:
    found = {each.text.split(":")[0]: each for each in run(Faulty(), 3, range(2_000))}
    assert set(found) == {"ZeroDivisionError", "KeyError"}
    assert (found["ZeroDivisionError"].data, found["ZeroDivisionError"].is_alone) == (b"\x07", True)
    behind = found["KeyError"]
    assert not behind.is_alone
    (fed,) = again(Faulty(), 3, behind.number)
    assert (fed.text, fed.data) == (behind.text, behind.data)
    lines = list(behind.lines())
    assert behind.data.hex() in lines[1]
    assert lines[2].endswith(f"./dev fuzz faulty --seed 3 --input {behind.number}")


def test_memory_is_bounded() -> None:
    (found,) = run(Greedy(), 3, range(200))
    assert "bytes of memory for" in found.text
    assert found.data[:1] > b"\xf0"


class Hanging(Faulty):
    """Does not come back from its fourth input."""

    def check(self, data: bytes) -> None:
        self._fed += 1
        if self._fed == 4:
            time.sleep(600)


class Dying(Hanging):
    """Takes its process with it."""

    def check(self, data: bytes) -> None:
        self._fed += 1
        if self._fed == 4:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("target", "text"), [(Hanging, "takes more than 0.5 s"), (Dying, "ended the process: -9")]
)
def test_an_input_that_hangs_or_kills_is_named(
    target: type[Target], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> Target:
        return target()

    monkeypatch.setattr(runner, "load_target", load)
    monkeypatch.setattr(runner, "START_METHOD", "fork")
    (found,) = run_beside("faulty", 3, range(20), hangs_after_s=0.5)
    assert (found.number, found.text, found.is_alone) == (3, text, False)
    assert found.data == Faulty().make(Random("3 faulty 3"))


def test_the_command_counts_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["codecs", "--inputs", "300"]) == 0
    assert "300 inputs, 0 findings, seed 0" in capsys.readouterr().out
    assert main(["codecs", "--input", "5"]) == 0
    for wrong in (["none"], ["--input", "5"]):
        with pytest.raises(SystemExit):
            main(wrong)
    assert "there is no target 'none'; there are frames," in capsys.readouterr().err
