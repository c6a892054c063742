"""SCRAM by the vectors of its RFCs, and against servers that do not keep to it."""

import pytest

from pyspark_klog.client.errors import AuthenticationFailed
from pyspark_klog.security.scram import MAX_ITERATIONS, Scram
from pyspark_klog.security.secret import Secret

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def _scram(mechanism: str = "SCRAM-SHA-256", user: str = "user", nonce: str = NONCE) -> Scram:
    return Scram(mechanism, user, Secret("pencil"), nonce)


def _at_final() -> Scram:
    scram = _scram()
    scram.initial()
    assert scram.respond(SERVER_FIRST.encode()) == CLIENT_FINAL.encode()
    return scram


def test_the_exchange_of_rfc_7677() -> None:
    scram = _scram()
    assert scram.initial() == f"n,,n=user,r={NONCE}".encode()
    assert scram.respond(SERVER_FIRST.encode()) == CLIENT_FINAL.encode()
    assert scram.respond(SERVER_FINAL.encode()) is None


def test_names_are_escaped_as_rfc_5802_says() -> None:
    assert _scram(user="a=b,c").initial() == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    with pytest.raises(AuthenticationFailed, match="could not show that it knows the password"):
        _at_final().respond(b"v=" + b"A" * 43 + b"=")


@pytest.mark.parametrize("final", [b"", b"v=", b"x=1", b"v=%%%", b"\xff\xfe"])
def test_a_final_message_that_is_none(final: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        _at_final().respond(final)


def test_a_refusal_in_the_final_message() -> None:
    with pytest.raises(AuthenticationFailed, match="the broker refused: invalid-proof"):
        _at_final().respond(b"e=invalid-proof")
    with pytest.raises(AuthenticationFailed, match=r"the broker refused: two \[1mlines$"):
        _at_final().respond(b"e=two\n\x1b[1mlines")


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "did not add to the client's SCRAM nonce"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "did not add to the client's SCRAM nonce"),
        (f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095", "asks for 4095 iterations"),
        (f"r={SERVER_NONCE},s=AAAA,i={MAX_ITERATIONS + 1}", "expected 4096 to 1000000"),
        (f"r={SERVER_NONCE},s=AAAA,i=-5000", "asks for -5000 iterations"),
        (f"r={SERVER_NONCE},s=AAAA,i={'9' * 5_000}", "asks for 99999999999999999999 iterations"),
        (f"r={SERVER_NONCE},s=AAAA,i=\x1b[2J\n9", r"asks for \[2J 9 iterations"),
        (f"r={SERVER_NONCE},s=AAAA,i=²²²²²", "does not follow RFC 5802"),
        (f"r={SERVER_NONCE},s=%,i=4096", "damaged base64"),
        (f"m=new,r={SERVER_NONCE},s=AAAA,i=4096", "does not follow RFC 5802"),
        (f"s=AAAA,i=4096,q={NONCE}", "does not follow RFC 5802"),
        (f"r={SERVER_NONCE},s=,i=4096", "does not follow RFC 5802"),
        ("", "does not follow RFC 5802"),
    ],
)
def test_a_first_message_that_must_not_be_answered(first: str, words: str) -> None:
    scram = _scram()
    scram.initial()
    with pytest.raises(AuthenticationFailed, match=words):
        scram.respond(first.encode())


def test_messages_out_of_order_are_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="the client did not expect"):
        _scram().respond(SERVER_FIRST.encode())
    scram = _at_final()
    scram.respond(SERVER_FINAL.encode())
    with pytest.raises(AuthenticationFailed, match="the client did not expect"):
        scram.respond(SERVER_FINAL.encode())
