"""Checks of a sink's options. Pure."""

from collections.abc import Mapping

from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.options import Options


def check_sink(options: Options, given: Mapping[str, str]) -> None:
    """Refuse options that a sink cannot have; ``given`` has them as text.

    :raises OptionError: saying what to do
    """
    for name in given:
        if name.lower() == "path":
            raise OptionError(
                f"a path is given, {given[name]!r}, as by save('x') or start('x'); a sink writes "
                "to topics: use option topic"
            )
    letters = options.dead_letter_topic
    if letters is None:
        if options.dead_letter_max is not None:
            raise OptionError(
                "option deadLetterMax is given without deadLetterTopic; expected both or none"
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
