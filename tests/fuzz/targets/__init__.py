"""What is fed: one file a target. TARGETS has them with their parts of a run."""

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
"""Of 100 inputs of a whole run so many each, about as many as take the same time."""


def load_target(name: str) -> Target:
    """Loaded when asked for: most of them bring a broker with them."""
    made: Target = import_module(f"tests.fuzz.targets.{name}").TARGET()
    return made
