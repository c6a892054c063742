"""Measurements of klog and its peers in the same run, reported as ratios: `./dev bench`.

Each module is one benchmark: a docstring whose first line names the measurement, and ``run(args)``.
"""
