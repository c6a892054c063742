"""Damaged and senseless input for code that parses foreign bytes: `./dev fuzz`.

docs/testing.md describes it. Start reading at target.py, then runner.py, then one of targets/.
"""
