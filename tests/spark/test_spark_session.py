"""Files of tests share a session: each finds it as it began."""

from typing import TYPE_CHECKING

import pytest

from tests.support.spark.session import restore_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oldest


def test_a_session_is_restored(spark: "SparkSession") -> None:
    before = dict(spark.conf.getAll)
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    spark.conf.set("spark.klog.of.a.test", "yes")
    spark.range(1).createOrReplaceTempView("left_behind")
    spark.readStream.format("rate").load().writeStream.format("noop").start()
    restore_session()
    assert dict(spark.conf.getAll) == before
    assert spark.sql("SHOW TABLES").collect() == []
    assert spark.streams.active == []
