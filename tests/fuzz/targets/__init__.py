"""The targets: one file for each. TARGETS has them with their shares of a run."""

from importlib import import_module

from tests.fuzz.target import Target

TARGETS = {
    "frames": 14,
    "requests": 10,
    "produce": 9,
    "recovery": 2,
    "codecs": 35,
    "clients": 24,
    "http": 6,
}
"""How many of 100 inputs of a whole run each target gets, so that each takes about as long."""


def load_target(name: str) -> Target:
    """Load a target when it is needed: most of them import a broker."""
    made: Target = import_module(f"tests.fuzz.targets.{name}").TARGET()
    return made
