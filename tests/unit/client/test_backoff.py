"""Waits between attempts."""

from pyspark_klog.client.transport.backoff import Backoff


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(100, 1_000)
    assert [backoff.wait_ms(n, lambda: 0.5) for n in range(1, 7)] == [
        100,
        200,
        400,
        800,
        1_000,
        1_000,
    ]


def test_waits_vary_by_a_fifth() -> None:
    backoff = Backoff(100, 1_000)
    assert backoff.wait_ms(1, lambda: 0.0) == 80
    assert backoff.wait_ms(1, lambda: 0.999999) == 119
    assert backoff.wait_ms(10_000, lambda: 0.999999) == 1_199


def test_a_first_wait_above_the_longest_does_not_shrink() -> None:
    backoff = Backoff(2_000, 1_000)
    assert [backoff.wait_ms(n, lambda: 0.5) for n in range(1, 4)] == [2_000] * 3


def test_no_wait_where_none_is_wanted() -> None:
    assert Backoff(0, 1_000).wait_ms(5, lambda: 0.5) == 0
