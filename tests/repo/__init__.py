"""Tests of this repository itself: pages, benchmarks, soaks, the oracle, the run of the tests."""
