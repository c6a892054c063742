"""Checks of a sink's options. Pure."""

from collections.abc import Mapping

from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.exactly_once import ExactlyOnce
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.rows import BY_KEY, REFUSED_BY_SINK

LATER_MICRO_BATCH = "klog.microbatch.later"
"""An option that no user gives, but `batch_writer`, the sink for foreachBatch, for its write of
each micro-batch after the first: notices that are logged once for a query are logged by then."""


def check_sink(
    options: Options, given: Mapping[str, str], *, is_batch_writer: bool = False
) -> None:
    """Refuse options that a sink cannot have; ``given`` has the options, whose names Spark gives in
    lower case and `batch_writer` as the user wrote them.

    ``is_batch_writer`` is true for the options of `pyspark_klog.batch_writer`, which makes a
    function for foreachBatch: exactlyOnce then requires exactlyOnceName and allows
    exactlyOnceQuery. For each batch write that this function begins, ``is_batch_writer`` is false.

    :raises OptionError: for the first such option, with what to do instead
    """
    names = {name.lower() for name in given}
    for name in given:
        if name.lower() == "path":
            raise OptionError(
                f"a path is given, {given[name]!r}, as by save('x') or start('x'); a sink writes "
                "to topics: use option topic"
            )
    options.check_side(REFUSED_BY_SINK)
    _check_letters(options)
    if options.exactly_once is not None:
        _check_exactly_once(options, options.exactly_once)
        _check_use(options.exactly_once, names, is_batch_writer=is_batch_writer)
    elif "exactlyonce" not in names:
        alone = [name for name in given if name.lower().startswith("exactlyonce")]
        if alone:
            row = BY_KEY.get(alone[0].lower())
            name = alone[0] if row is None else row.name
            raise OptionError(
                f"option {name} is given without exactlyOnce; expected exactlyOnce=true as "
                "well, or exactlyOnce=false to leave it without effect"
            )


def _check_letters(options: Options) -> None:
    letters = options.dead_letter_topic
    if letters is None:
        if options.dead_letter_max is not None:
            raise OptionError(
                "option deadLetterMax is given without deadLetterTopic: set both, or no limit"
            )
        return
    if letters == options.topic:
        raise OptionError(
            f"options topic and deadLetterTopic are both {letters!r}; expected two topics"
        )
    if options.client["acks"] == "0":
        raise OptionError(
            "option deadLetterTopic needs brokers' answers, and kafka.acks is 0; expected all or 1"
        )


def _check_exactly_once(options: Options, exactly_once: ExactlyOnce) -> None:
    client = options.client
    if client["acks"] != "all":
        raise OptionError(
            f"option exactlyOnce needs kafka.acks=all, but kafka.acks is {client['acks']}: "
            "leave kafka.acks out"
        )
    if not client.flag("enable.idempotence"):
        # Idempotence is also off if more requests may be in flight than brokers keep in order.
        raise OptionError(
            "option exactlyOnce needs kafka.enable.idempotence=true, with at most 5 in "
            "kafka.max.in.flight.requests.per.connection: leave both out"
        )
    if exactly_once.topic is None:
        raise OptionError(
            "option exactlyOnce stores its progress under a topic, and option topic, which "
            "could name it, is not given: set option exactlyOnceTopic to a topic that "
            "will not be deleted"
        )


def _check_use(exactly_once: ExactlyOnce, names: set[str], *, is_batch_writer: bool) -> None:
    if is_batch_writer:
        if "exactlyoncename" not in names:
            raise OptionError(
                "batch_writer with exactlyOnce needs option exactlyOnceName: a query may have "
                "several batch writers, and each needs its own name, which must not change"
            )
    elif exactly_once.query is not None and exactly_once.micro_batch is None:
        raise OptionError(
            "option exactlyOnceQuery is only for batch_writer: leave it out; a stream has the id "
            "of its checkpoint, a batch write an id of its own"
        )
