"""Damaged and senseless input for the code that parses foreign bytes: `./dev fuzz`
(docs/testing.md). Start reading at target.py, then runner.py, then one of targets/."""
