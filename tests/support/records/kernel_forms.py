"""Runs modules of cases in the form of the kernels (compiled, plain, compiled with bounds checks)
that the environment of the process chooses.

``python -m tests.support.records.kernel_forms MODULE=SEEDS ...`` prints ``MODULE DIGEST`` for each
module. The modules share a process, so a function that several kernels call is compiled once.
"""

import importlib
import sys


def main() -> None:
    """Print the digest of each module of cases that the command line names."""
    for argument in sys.argv[1:]:
        module, _, seeds = argument.partition("=")
        digest = importlib.import_module(module).run_seeds(range(int(seeds)))
        print(module, digest, flush=True)


if __name__ == "__main__":
    main()
