"""Advice on options that klog lacks and ``kafka.*`` settings that Kafka's clients lack. Pure."""

from difflib import get_close_matches

from pyspark_klog.client.settings.unknown_settings import find_similar_setting
from pyspark_klog.spark.options.rows import BY_KEY, REFUSED_BY_SINK, REFUSED_BY_SOURCE, SPARKS_OWN

_OPTIONS_BY_JOB = {
    "commit.groupid": "option commitGroupId commits a stream's position to a consumer group",
    "topic": "option subscribe names topics to read, and option topic one to write to",
    "topics": "option subscribe names topics to read, and option topic one to write to",
    "poll.timeout.ms": "option kafkaConsumer.pollTimeoutMs bounds the wait for records",
    "poll.ms": "option kafkaConsumer.pollTimeoutMs bounds the wait for records",
    "polltimeoutms": "option kafkaConsumer.pollTimeoutMs bounds the wait for records",
}
"""Names, in lower case, that users of other connectors may write after ``kafka.``, with advice on
the option of klog that does what the user expects."""
_NEAR = 0.9


def note_on_unknown(name: str, prefix: str) -> str | None:
    """Return advice on the option ``prefix`` + ``name``, as a clause. The name is in lower case.

    Returns None if no option or setting resembles the name, or if it resembles a setting on which
    client/settings/unknown_settings.py gives advice.
    """
    job = _OPTIONS_BY_JOB.get(name.removeprefix("consumer."))
    if job is not None:
        return job
    if name in BY_KEY:
        return f"option {BY_KEY[name].name} is written without {prefix} before it"
    if name in SPARKS_OWN:
        return f"Spark's option {name} is written without {prefix} before it"
    meant = find_similar_setting(name)
    if meant is not None:
        return REFUSED_BY_SOURCE.get(meant, REFUSED_BY_SINK.get(meant))
    near = meant_option(name, _NEAR)
    return f"did you mean option {near}?" if near else None


def meant_option(name: str, cutoff: float) -> str | None:
    """Return the option that the unknown option ``name`` (in lower case) resembles, or None.

    Other sources limit a micro-batch by files, rows, records, messages or events, as in
    maxFilesPerTrigger; klog's limit counts offsets: maxOffsetsPerTrigger or minOffsetsPerTrigger.
    """
    near = get_close_matches(name, list(BY_KEY), n=1, cutoff=cutoff)
    if near:
        return BY_KEY[near[0]].name
    if name.removesuffix("s").endswith("pertrigger"):
        return "minOffsetsPerTrigger" if name.startswith("min") else "maxOffsetsPerTrigger"
    return None
