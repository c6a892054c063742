"""Packages and documents whose sentences `./dev check` holds to the rules, and exceptions."""

from tools.plain_words.check import AllowedSentence

FINISHED: tuple[str, ...] = (
    "broker/klog_broker/config",
    "broker/klog_broker/metrics",
    "broker/klog_broker/runtime",
    "broker/klog_broker/security",
    "broker/klog_broker/log/batch_rows.py",
    "broker/klog_broker/log/directory",
    "broker/klog_broker/log/errors.py",
    "broker/klog_broker/log/log_config.py",
    "broker/klog_broker/log/producers",
    "broker/klog_broker/log/read",
    "broker/klog_broker/log/segment",
    "broker/klog_broker/log/validation",
)
"""Folders (with all below them) and files, as paths from the top of the checkout.

A rewritten package adds a line here, in the same commit: `"broker/klog_broker/log",`.
"""

ALLOWED: tuple[AllowedSentence, ...] = ()
"""Sentences that the rules refuse and that stay, each with its reason."""
