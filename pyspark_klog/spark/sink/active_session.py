"""Sets the session in which Spark looks up a Python source, for the calling thread.

Spark searches the data sources of the session that is active in the JVM thread. Each Python thread
has its own JVM thread, and a new one has no active session: ``df.write.format("klog")`` fails in it
with DATA_SOURCE_NOT_FOUND until a session is set, as ``spark.createDataFrame`` does.
"""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def set_active_session(spark: "SparkSession", *, replace: bool) -> None:
    """Make ``spark`` the active session of the calling thread, in which Spark looks up Python data
    sources; never raises.

    Without ``replace`` a session that is already active stays. Under Spark Connect nothing happens:
    the client has no JVM thread, and the server looks sources up in its own session.
    """
    jvm_session = getattr(spark, "_jsparkSession", None)
    if jvm_session is None:
        return
    try:
        companion = spark._get_j_spark_session_class(spark._jvm)
        if replace or not companion.getActiveSession().isDefined():
            companion.setActiveSession(jvm_session)
    except Exception as error:
        # Some distributions of Spark hide the JVM from Python. If Spark then finds no data source
        # klog for lack of an active session, the write itself fails with Spark's error.
        _log.debug("cannot set the thread's active session: %s", error)
