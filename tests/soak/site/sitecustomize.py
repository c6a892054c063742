"""Python imports this module at its start if PYTHONPATH has this folder (tests/soak/hooks.py)."""

import os

if os.environ.get("KLOG_SOAK_TRAPS"):
    from tests.soak.hooks import install

    install()
