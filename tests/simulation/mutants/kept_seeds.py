"""Seeds that have caught mutants: they are tried before others.

With other code a seed makes another run, so that each change of the broker may need new seeds:
``--mutants --keep`` writes them.
"""

import json
from pathlib import Path

_FILE = Path(__file__).with_suffix(".json")


def kept_seeds(simulation: str, name: str) -> tuple[int, ...]:
    """The seed that is kept for this mutant in this simulation, or none."""
    seed = _read().get(simulation, {}).get(name)
    return () if seed is None else (seed,)


def keep_seed(simulation: str, name: str, seed: int) -> None:
    """Try this seed first from now on."""
    kept = _read()
    kept.setdefault(simulation, {})[name] = seed
    _write(kept)


def kept_names(simulation: str) -> set[str]:
    """The mutants that have a kept seed."""
    return set(_read()[simulation])


def _read() -> dict[str, dict[str, int]]:
    kept: dict[str, dict[str, int]] = json.loads(_FILE.read_text())
    return kept


def _write(kept: dict[str, dict[str, int]]) -> None:
    anew = _FILE.with_suffix(".new")
    anew.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
    anew.replace(_FILE)  # atomically, because other processes read the file at the same time
