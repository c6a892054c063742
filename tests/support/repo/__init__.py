"""Helpers of tests/repo: the run of the tests, documents, notebooks, machines for `./dev`."""
