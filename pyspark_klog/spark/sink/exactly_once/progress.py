"""What the tasks of an exactly-once sink tell the driver. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_klog.client.admin.sinks import ProgressRow

if TYPE_CHECKING:
    from pyspark_klog.client.transactions.producer import OpenTransaction

# Spark unpickles messages in planning processes: what talks to brokers is imported only where a
# message has an open transaction.


@dataclass(frozen=True)
class TaskProgress:
    """What a task tells the driver."""

    transactional_id: str
    """Also the id of the task's group."""
    topic: str
    """Whose partition 0 the row names."""
    row: ProgressRow
    """The task's own row. A task that only verified gives the row that it found: an earlier attempt
    of this batch committed that."""
    before: ProgressRow | None
    """The row that was there when the task began to write; None if there was none. A task that
    verified gives the row that it found here, too."""
    opened: "OpenTransaction | None"
    """The task's transaction, for the driver to end; None if it is committed."""
    run_id: str
    """The run that writes now."""
