"""Damaged and senseless input for what reads bytes of others: `./dev fuzz` (docs/testing.md).

Start reading at target.py, then runner.py, then one of targets/.
"""
