"""Sets the session that Spark looks a Python source up with in the calling thread.

Spark searches the data sources of the session that is active in the JVM thread. Each Python thread
has a JVM thread of its own, and a new one has no active session: ``df.write.format("klog")`` fails
there with DATA_SOURCE_NOT_FOUND until a session is set, as ``spark.createDataFrame`` does.
"""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def set_active_session(spark: "SparkSession", *, replace: bool) -> None:
    """Make ``spark`` the active session of the calling thread; never raises.

    Without ``replace`` a session that is active already stays. Spark Connect has no JVM thread in
    the client and looks sources up in the server's session: nothing happens there.
    """
    jvm_session = getattr(spark, "_jsparkSession", None)
    if jvm_session is None:
        return
    try:
        companion = spark._get_j_spark_session_class(spark._jvm)
        if replace or not companion.getActiveSession().isDefined():
            companion.setActiveSession(jvm_session)
    except Exception as error:
        # A vendor may hide the JVM. The write itself then says whether the source is found.
        _log.debug("cannot set the thread's active session: %s", error)
