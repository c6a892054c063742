"""Prose that repeats a default: the sentence must equal the one made from the setting's row."""

import re
from collections.abc import Callable

import pytest

from klog_broker.config import SETTINGS as BROKER
from pyspark_klog.client.settings.setting_rows import SETTINGS as CLIENT
from pyspark_klog.spark.options.rows import OPTIONS
from tests.support.repo.documents import ROOT

OPTION = {row.name: row.default for row in OPTIONS}
_PRINTED = {"configuration.md", "options.md", "parity.md", "apis.md"}
_MINUTES_OF_A_WEEK = 7 * 24 * 60


def of_client(name: str) -> object:
    return CLIENT[name].default


def of_broker(name: str) -> object:
    return BROKER[name].default


def week(name: str) -> str:
    return "a week" if of_broker(name) == _MINUTES_OF_A_WEEK else f"{of_broker(name)} minutes"


CLAIMS: tuple[tuple[str, str, Callable[[], object]], ...] = (
    (
        "differences.md",
        "`kafka.batch.size` is {} instead of 16384",
        lambda: of_client("batch.size"),
    ),
    (
        "differences.md",
        "`kafka.max.partition.fetch.bytes` is {} instead of 1048576",
        lambda: of_client("max.partition.fetch.bytes"),
    ),
    (
        "differences.md",
        "`kafka.fetch.min.bytes` is {} instead of 1:",
        lambda: of_client("fetch.min.bytes"),
    ),
    (
        "differences.md",
        "`kafka.receive.buffer.bytes` and `kafka.send.buffer.bytes` are {}, the system's, instead",
        lambda: {of_client("receive.buffer.bytes"), of_client("send.buffer.bytes")}.pop(),
    ),
    (
        "differences.md",
        "`kafka.transaction.timeout.ms` is {} instead of 60000",
        lambda: of_client("transaction.timeout.ms"),
    ),
    ("differences.md", "`kafka.client.id` is `{}`,", lambda: of_client("client.id")),
    (
        "differences.md",
        "`kafka.sasl.login.read.timeout.ms` are {}, where Kafka has none",
        lambda: of_client("sasl.login.read.timeout.ms"),
    ),
    (
        "differences.md",
        "`kafka.sasl.login.connect.timeout.ms` and `kafka.sasl.login.read.timeout.ms` are {},",
        lambda: of_client("sasl.login.connect.timeout.ms"),
    ),
    (
        "differences.md",
        "**`kafkaConsumer.pollTimeoutMs`** is {} unless given",
        lambda: OPTION["kafkaConsumer.pollTimeoutMs"],
    ),
    (
        "differences.md",
        "an idle query looks for records every {} ms (`idleWaitMs`)",
        lambda: OPTION["idleWaitMs"],
    ),
    (
        "migrating.md",
        "are picked up within some {} ms (`idleWaitMs`",
        lambda: OPTION["idleWaitMs"],
    ),
    (
        "progress-and-lag.md",
        "`committedOffsetsMissing`: `{}` (default)",
        lambda: OPTION["committedOffsetsMissing"],
    ),
    (
        "progress-and-lag.md",
        "(`offsets.retention.minutes`, {})",
        lambda: week("offsets.retention.minutes"),
    ),
    ("security.md", "| `{}` (default) |", lambda: of_client("security.protocol")),
)


def plain(document: str) -> str:
    """The page's text on one line."""
    return " ".join((ROOT / "docs" / document).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(("document", "sentence", "default"), CLAIMS)
def test_a_sentence_has_the_default_of_its_row(
    document: str, sentence: str, default: Callable[[], object]
) -> None:
    assert sentence.format(default()) in plain(document)


def test_no_other_sentence_repeats_a_default() -> None:
    """A name, and soon after it the words that go with a default."""
    words = re.compile(
        r"`\**(?:kafka\.)?([\w.]+)`\**[^.;|:]{0,60}?"
        r"(?:\bis\b|\bare\b|:) `?(-?[\w-]+)`?(?: instead of| \(default\)| unless given)"
    )
    names = {*BROKER, *CLIENT, *OPTION}
    unclaimed = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        if path.name in _PRINTED:
            continue
        text = plain(path.name)
        claimed = [
            sentence.format(default()) for name, sentence, default in CLAIMS if name == path.name
        ]
        for match in words.finditer(text):
            start, end = match.span()
            found = text[start:end]
            spans = [
                place
                for claim in claimed
                for place in [text.find(claim)]
                if place <= end and place + len(claim) >= start
            ]
            if match[1] in names and not spans:
                unclaimed.append(f"{path.name}: {found}")
    assert not unclaimed, "make the sentence from its row: CLAIMS"
