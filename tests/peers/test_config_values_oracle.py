"""Which texts are values of a setting, and of which value: klog beside Kafka 3.9.1 and 4.3.1.

Each setting of brokers and topics is given each text, whatever its type is.
"""

import pytest

from klog_broker.config import SETTINGS, TOPIC_SETTINGS, ConfigError
from klog_broker.config.setting_rows import KLOGS_OWN
from klog_broker.config.types import Password, Setting, SettingType, Value, parse_value, render
from tests.support.config_bounds import DIFFERENT_BOUNDS
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA
from tests.support.protocol.kafka_definitions import run_java
from tools.docs.kafka4_settings import BROKER_CHANGES, TOPIC_CHANGES

pytestmark = pytest.mark.peers

_NO_ITEM_TWICE = "4.x refuses a list with an item twice"
_REFUSED = "refused"
_ABSENT = "absent"

_NUMBERS = (
    *(
        "0",
        "1",
        "2",
        "3",
        "10",
        "100",
        "1000",
        "60000",
        "-1",
        "-2",
        "+1",
        " 1 ",
        "1\t",
        "01",
        "007",
    ),
    *("1.0", "1.", "1e3", "1E3", "0x10", "0X1F", "#10", "010", "0b1", "1_000", "1,000", "1L", "1l"),
    *(
        "- 1",
        "+ 1",
        "--1",
        "+",
        "-",
        "",
        "  ",
        "null",
        "NaN",
        "Infinity",
        "-Infinity",
        "inf",
        "nan",
    ),
    *("\uff11", "\u0661", "\U0001d7cf", "\xa01", "1\xa0", "\u20031", "1\x00", "\x1f1"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "32767", "32768"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *(
        "0.5",
        ".5",
        "5.",
        ".",
        "0.5f",
        "0.5d",
        "0.5D",
        "0.5F",
        "0.5fd",
        "1e-3",
        "1e400",
        "1e",
        "-0.0",
    ),
    *("0x1p3", "0x1.8p1", "0x1p", "0x.p1", "0x1p3d", "0x1.dp1", "0x1p9999", "-0x1p9999"),
)
_WORDS = (
    *("true", "false", "TRUE", "False", " true ", "tRuE", "yes", "on", "t", "true,"),
    *("a,b", "a, b", " a , b ", ",a", "a,", "a,,b", ",", ",,", " , ", "a b", "a\tb", "a,a"),
    *("a\n,b", "a\x85,b", "a\x1f,b", "delete", "compact", "compact,delete", "delete,compact"),
    *("delete, compact", "compact,compact", "delete,", "DELETE", ",delete", "*", "*,", "*,0:1"),
    *("0:1", "0:1,1:0", "0:1, 1:0", "0:1,", "0:\u0661", "0:", ":", "none", "PLAIN, GSSAPI"),
    *("zstd", "ZSTD", "gzip", "Gzip", "lz4", "snappy", "producer", "Producer", "uncompressed"),
    *("CreateTime", "createtime", "LogAppendTime", "secret ", " se cret", "PLAINTEXT://:9092"),
)
_RELEASES = (
    *("0.8.0", "0.8.2", "0.8.2.X", "0.8.3", "0.9", "0.9.0", "0.9.0.1", "0.9.0.", "0.9.0-IV0"),
    *("0.10", "0.10.0", "0.10.0.0", "0.10.0-IV0", "0.10.0-IV2", "0.10.2.2", "0.11.0", "0.11.0.3"),
    *("1.1", "2.0", "2.3", "2.3.1", "2.8-IV1", "2.8-IV2", "2.8.1-IV0", "2.9", "3.0", "3.0-IV1"),
    *(
        "3.0-IV5",
        "3.0-IV",
        "3.0-IV01",
        "3.0.x",
        "3.5.",
        "3.5..",
        "3.5.x.",
        "3.9",
        "3.9.1.2",
        "3.9-IV0",
    ),
    *("3.9-IV1", "3.10", "4.0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.1", "5.0", "10.0", "3", ".3.5"),
)
TEXTS = tuple(dict.fromkeys((*_NUMBERS, *_WORDS, *_RELEASES)))

ROWS: list[tuple[str, str, Setting]] = [
    *(("broker", name, row) for name, row in SETTINGS.items() if name not in KLOGS_OWN),
    *(("topic", name, row) for name, row in TOPIC_SETTINGS.items()),
]


def _asked(release: str, questions: list[tuple[str, str, str]]) -> list[str]:
    lines = (f"{kind}\t{name}\t{text.encode().hex()}\n" for kind, name, text in questions)
    found = run_java(release, "ConfigValues.java", "".join(lines))
    assert len(found) == len(questions)
    return [
        line if line in (_REFUSED, _ABSENT) else "=" + bytes.fromhex(line).decode()
        for line in found
    ]


def _shown(value: Value) -> str:
    return "=" + (value.reveal() if isinstance(value, Password) else str(render(value)))


@pytest.mark.parametrize("release", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_a_type_has_the_texts_that_kafka_reads(release: str) -> None:
    """A class is left out: klog loads none of Java's."""
    types = [t for t in SettingType if t not in (SettingType.UNKNOWN, SettingType.CLASS)]
    questions = [("type", kind.name, text) for kind in types for text in TEXTS]
    for (_, kind, text), theirs in zip(questions, _asked(release, questions), strict=True):
        try:
            ours = _shown(parse_value("x", SettingType[kind], text))
        except ConfigError:
            ours = _REFUSED
        if theirs == "=NaN" and kind == "DOUBLE":
            assert ours == _REFUSED, "with NaN the cleaner would never find anything to do"
        else:
            assert ours == theirs, (kind, text)


def test_a_setting_has_the_values_that_3_9_has() -> None:
    questions = [(kind, name, text) for kind, name, _ in ROWS for text in TEXTS]
    answers = iter(_asked(OLDEST_KAFKA, questions))
    differences = []
    for kind, name, row in ROWS:
        for text in TEXTS:
            theirs = next(answers)
            try:
                ours = _shown(row.parse(text))
            except ConfigError:
                ours = _REFUSED
            is_stricter = ours == _REFUSED and (name in DIFFERENT_BOUNDS or theirs == "=NaN")
            if ours != theirs and not is_stricter:
                differences.append((kind, name, text, ours, theirs))
    assert differences == []


def test_4_x_reads_other_texts_only_of_settings_that_it_changed() -> None:
    questions = [(kind, name, text) for kind, name, _ in ROWS for text in TEXTS]
    both = zip(_asked(OLDEST_KAFKA, questions), _asked(NEWEST_KAFKA, questions), strict=True)
    changed = {
        (kind, name)
        for (kind, name, _), (old, new) in zip(questions, both, strict=True)
        if old != new
    }
    listed = {
        "broker": {**BROKER_CHANGES, "log.cleanup.policy": _NO_ITEM_TWICE},
        "topic": {**TOPIC_CHANGES, "cleanup.policy": _NO_ITEM_TWICE},
    }
    assert [(kind, name) for kind, name in sorted(changed) if name not in listed[kind]] == []
