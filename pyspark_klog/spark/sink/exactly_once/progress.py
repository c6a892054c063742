"""The results that the tasks of an exactly-once sink return to the driver. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_klog.client.admin.sink_progress import ProgressRow

if TYPE_CHECKING:
    from pyspark_klog.client.transactions.producer import OpenTransaction

# Spark unpickles a `TaskProgress` in the process that commits a micro-batch, and most commits send
# no request: modules that talk to brokers are imported only with an open transaction.


@dataclass(frozen=True)
class TaskProgress:
    """A task's result for the driver."""

    transactional_id: str
    """The transactional id, which is also the id of the consumer group with the progress row."""
    topic: str
    """The topic of the progress row: an offset committed for partition 0 of this topic."""
    row: ProgressRow
    """The task's progress row. If another attempt committed this micro-batch's rows, it is the row
    of that attempt."""
    before: ProgressRow | None
    """The progress row (committed offset) that existed when the task began to write; None if there
    was none. In a task that only compared its rows with committed ones, it is equal to ``row``."""
    opened: "OpenTransaction | None"
    """The task's transaction, for the driver to end; None if this attempt or another one of the
    task has committed the rows."""
    run_id: str
    """The id of the run (one start of the query) in which the task wrote its rows, or compared them
    with the rows that an earlier attempt committed."""
