"""The results that the tasks of an exactly-once sink return to the driver. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_klog.client.admin.sink_progress import ProgressRow

if TYPE_CHECKING:
    from pyspark_klog.client.transactions.producer import OpenTransaction

# Spark unpickles messages in planning processes: modules that talk to brokers are imported only
# where a message has an open transaction.


@dataclass(frozen=True)
class TaskProgress:
    """A task's result for the driver."""

    transactional_id: str
    """The task's transactional id, which is also the id of its group."""
    topic: str
    """The topic whose partition 0 the progress row names."""
    row: ProgressRow
    """The task's progress row. A task that only verified returns the one that it found, which an
    earlier attempt of this batch committed."""
    before: ProgressRow | None
    """The progress row that existed when the task began to write; None if there was none. A task
    that only verified returns the one that it found here, too."""
    opened: "OpenTransaction | None"
    """The task's transaction, for the driver to end; None if it is committed."""
    run_id: str
    """The id of the query's run that writes now."""
