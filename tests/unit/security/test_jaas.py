"""sasl.jaas.config as JVM users write it; its values are in no message."""

import pytest

from pyspark_klog.client.errors import SettingError
from pyspark_klog.security.jaas import read_jaas
from pyspark_klog.security.secret import Secret

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def _options(config: str) -> dict[str, str]:
    module = read_jaas(Secret(config))
    return {name: value.reveal() for name, value in module.options.items()}


@pytest.mark.parametrize("flag", ["required", "requisite", "sufficient", "optional", "REQUIRED"])
def test_a_login_module_with_its_flag_and_options(flag: str) -> None:
    module = read_jaas(Secret(f'{PLAIN} {flag} username="alice" password="s3cret";'))
    assert module.class_name == PLAIN
    assert module.short_name == "PlainLoginModule"
    assert {k: v.reveal() for k, v in module.options.items()} == {
        "username": "alice",
        "password": "s3cret",
    }


@pytest.mark.parity("security: jaas: kafkashaded prefix")
def test_the_prefix_of_a_shaded_class_is_left_out() -> None:
    assert read_jaas(Secret(f'kafkashaded.{PLAIN} required username="a";')).class_name == PLAIN


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"plain"', "plain"),
        ("'single'", "single"),
        ('"it\'s"', "it's"),
        ("'say \"hi\"'", 'say "hi"'),
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', r"a\b"),
        (r'"tab\tnew\nline"', "tab\tnew\nline"),
        (r'"\101\1012\7"', "AA2\x07"),
        (r'"\477"', "'7"),
        (r'"\q"', "q"),
        ('"a;b=c // d /* e */ # f"', "a;b=c // d /* e */ # f"),
        ('"pä€s"', "pä€s"),
        ('""', ""),
        ("word-with_$igns.and.d0ts", "word-with_$igns.and.d0ts"),
        ("üx", "üx"),
        ("true", "true"),
    ],
)
def test_values_are_quoted_as_in_java(written: str, meant: str) -> None:
    assert _options(f"{PLAIN} required password={written};") == {"password": meant}


@pytest.mark.parametrize(
    "config",
    [
        f'{PLAIN}\n  required\n  username="alice"\n  password="p"\n;\n',
        f'{PLAIN} required /* who */ username = "alice" // that\n password="p";',
        f'"{PLAIN}" required "username"="alice" password="p" ;',
        f'{PLAIN} required username="other" username="alice" password="p"; // end',
    ],
)
def test_blanks_comments_and_order_count_for_nothing(config: str) -> None:
    assert _options(config) == {"username": "alice", "password": "p"}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("", "is empty; expected a login module"),
        ("  /* nothing */ ", "is empty; expected a login module"),
        ("=", "has no login module where one should begin"),
        (PLAIN, "no control flag after the login module; expected one of required"),
        (f'{PLAIN} username="HIDDEN";', "no control flag"),
        (f'{PLAIN} required username="a" password="HIDDEN"', "does not end with a semicolon"),
        (f'{PLAIN} required password="HIDDEN;', "a quote that is not closed"),
        (f'{PLAIN} required password="HIDDEN\nHIDDEN";', "a quote that is not closed"),
        (f"{PLAIN} required password=12HIDDEN;", "no value that could be read for an option"),
        (f"{PLAIN} required password=-HIDDEN;", "no value that could be read for an option"),
        (f"{PLAIN} required username=;", 'as in username="..."'),
        (f"{PLAIN} required password=%HIDDEN;", 'as in password="..."'),
        (f"{PLAIN} required password=a HIDDEN;", 'an option without "="'),
        (f'{PLAIN} required password="x"HIDDEN";', "a quote that is not closed"),
        (f'{PLAIN} required password="x"HIDDEN=;', 'as in password="..."'),
        (f"{PLAIN} required password=a%HIDDEN;", "something that is no option"),
        (f"{PLAIN} required; {PLAIN} required;", "has 2 login modules; expected one"),
    ],
)
def test_what_cannot_be_read_is_explained_without_its_values(config: str, words: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_jaas(Secret(config), "kafka.sasl.jaas.config")
    text = str(caught.value)
    assert text.startswith("kafka.sasl.jaas.config ")
    assert words in text
    assert "HIDDEN" not in text
    assert "\n" not in text
