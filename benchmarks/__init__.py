"""Measurements of klog beside its peers, in one run, reported as ratios: `./dev bench`.

Each module is one benchmark: a docstring whose first line says what it measures, and ``run(args)``.
"""
