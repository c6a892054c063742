"""Python imports this at its start, where this folder is on PYTHONPATH: see tests/soak/hooks.py."""

import os

if os.environ.get("KLOG_SOAK_TRAPS"):
    from tests.soak.hooks import install

    install()
