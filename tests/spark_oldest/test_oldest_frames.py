"""Frames on Spark 4.0, which plans a Python source in each query."""

import pytest

from tests.support.spark.session import spark_session
from tests.support.spark.topics import Topics

pytestmark = pytest.mark.oldest


def test_a_frame_that_is_executed_again_returns_the_rows_of_this_moment(topics: Topics) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    frame = topics.batch(subscribe=topic)
    frame.createOrReplaceTempView("used_again")
    assert frame.count() == 3
    topics.put_numbers(topic, range(2))
    assert frame.count() == 5
    assert spark_session().sql("select * from used_again").count() == 5


def test_one_physical_plan_has_one_end(topics: Topics) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    frame = topics.batch(subscribe=topic).select("offset")
    rows = frame.collect()
    topics.put_numbers(topic, range(2))
    assert frame.collect() == rows
