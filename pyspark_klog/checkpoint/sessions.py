"""Looks for a running query in the Spark session of this process."""

import sys


def running_query_refusal(query_id: str | None) -> str | None:
    """Why a running query prevents a move; None if none is found.

    Only queries of this process's active session can be found: a checkpoint does not show whether a
    query is running elsewhere.
    """
    if query_id is None or "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None or all(str(query.id) != query_id for query in session.streams.active):
        return None
    return f"query {query_id} is running in this process's Spark session: stop it first"
