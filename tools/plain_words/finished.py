"""Packages and documents whose sentences `./dev check` holds to the rules, and exceptions."""

from tools.plain_words.check import AllowedSentence

FINISHED: tuple[str, ...] = (
    "broker/klog_broker/__init__.py",
    "broker/klog_broker/__main__.py",
    "broker/klog_broker/api",
    "broker/klog_broker/app.py",
    "broker/klog_broker/cli",
    "broker/klog_broker/cluster",
    "broker/klog_broker/compaction",
    "broker/klog_broker/config",
    "broker/klog_broker/controller",
    "broker/klog_broker/coordinator",
    "broker/klog_broker/coordinator_hosting",
    "broker/klog_broker/dispatch",
    "broker/klog_broker/fetch",
    "broker/klog_broker/inspection",
    "broker/klog_broker/lifecycle",
    "broker/klog_broker/log",
    "broker/klog_broker/membership",
    "broker/klog_broker/metadata",
    "broker/klog_broker/metrics",
    "broker/klog_broker/monitoring",
    "broker/klog_broker/network",
    "broker/klog_broker/parts.py",
    "broker/klog_broker/process.py",
    "broker/klog_broker/produce",
    "broker/klog_broker/quota",
    "broker/klog_broker/replication",
    "broker/klog_broker/resources",
    "broker/klog_broker/runtime",
    "broker/klog_broker/security",
    "broker/klog_broker/topics",
    "broker/klog_broker/warm.py",
    "pyspark_klog/errors.py",
    "pyspark_klog/ids.py",
    "pyspark_klog/java_text.py",
    "pyspark_klog/log_fallback.py",
    "pyspark_klog/properties.py",
    "pyspark_klog/protocol",
    "pyspark_klog/records",
    "pyspark_klog/security",
    "pyspark_klog/state_records",
    "pyspark_klog/znodes",
)
"""Folders (with all below them) and files, as paths from the top of the checkout.

A rewritten package adds a line here, in the same commit: `"broker/klog_broker/log",`.
"""

ALLOWED: tuple[AllowedSentence, ...] = ()
"""Sentences that the rules refuse and that stay, each with its reason."""
