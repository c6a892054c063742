"""The option ``pushdown``: what a user vouches for, so that filters may cut a batch. Pure.

`planning/pruning.py` cuts by it.
"""

from collections.abc import Mapping

from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.values import read_words

TIMES, KEYS = "times", "keys"
ASSUMPTIONS = (TIMES, KEYS)
"""The words of ``pushdown``. By each the user vouches for something that no broker can tell. TIMES:
in a partition records' times never go back. KEYS: only the default partitioner has chosen
partitions by keys, and the topic has always had as many partitions as now."""


def read_pushdown(options: Mapping[str, str]) -> frozenset[str] | None:
    """The option's assumptions; None if filters are to cut nothing.

    :raises OptionError: for any other word
    """
    words = read_words(options, "pushdown", ("true", "false", *ASSUMPTIONS)) or ("false",)
    if words == ("false",):
        return None
    if "false" in words:
        raise OptionError(f"option pushdown is {options['pushdown']!r}; expected one or the other")
    return frozenset(words) & frozenset(ASSUMPTIONS)
