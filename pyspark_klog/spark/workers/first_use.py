"""The driver's log line before kernels (compiled functions) are used for the first time."""

import logging

from pyspark_klog.log_fallback import log_notice
from pyspark_klog.spark.workers.plan_memory import is_first_notice

_log = logging.getLogger(__name__)


def log_first_use() -> None:
    """Log, once on this machine, that tasks will compile kernels, and how long that takes.

    Call this in the planning processes of the driver, not in tasks: each executor would log it.
    """
    if not is_first_notice("first use of kernels"):
        return
    from pyspark_klog.records.kernels import claim_first_use

    if claim_first_use():
        log_notice(
            _log,
            "klog's kernels are being compiled: the first read and the first write on each host "
            "take 5 to 20 s longer, once; python -m pyspark_klog.warm compiles them ahead",
        )
