"""Seeds that have caught mutants: they are tried before others. Other code makes another play of a
seed, so that each change of the broker may need new ones: ``--mutants --keep`` writes them."""

import json
from pathlib import Path

_FILE = Path(__file__).with_suffix(".json")


def kept_seeds(simulation: str, name: str) -> tuple[int, ...]:
    """The one that is kept for this mutant in this simulation, or none."""
    seed = _read().get(simulation, {}).get(name)
    return () if seed is None else (seed,)


def keep_seed(simulation: str, name: str, seed: int) -> None:
    """From now on it is tried first."""
    kept = _read()
    kept.setdefault(simulation, {})[name] = seed
    _write(kept)


def kept_names(simulation: str) -> set[str]:
    """The mutants that have one."""
    return set(_read()[simulation])


def _read() -> dict[str, dict[str, int]]:
    kept: dict[str, dict[str, int]] = json.loads(_FILE.read_text())
    return kept


def _write(kept: dict[str, dict[str, int]]) -> None:
    anew = _FILE.with_suffix(".new")
    anew.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
    anew.replace(_FILE)  # at once: other processes read it meanwhile
