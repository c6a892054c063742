"""Bearer tokens: the exchange, what is read of them, and when they are renewed."""

import base64
import json
from pathlib import Path

import pytest

from pyspark_klog.client.errors import AuthenticationFailed, SettingError
from pyspark_klog.client.security.tokens import TokenSource, renew_at_ms
from pyspark_klog.security.oauthbearer import (
    OAuthBearer,
    Token,
    check_token,
    expiry_of,
    read_extensions,
    unsecured_token,
)
from pyspark_klog.security.sasl_config import (
    Renewal,
    TokenFile,
    TokenFunction,
    UnsecuredTokens,
)
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.user_functions import UserFunction

MINUTE_MS = 60_000


def jwt(**claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"eyJhbGciOiJub25lIn0.{body}.c2ln"


def claims_of(token: Token) -> dict[str, object]:
    body = token.value.reveal().split(".")[1]
    found: dict[str, object] = json.loads(base64.urlsafe_b64decode(body + "=="))
    return found


# --- the exchange --------------------------------------------------------------------------------
def test_the_first_message_of_rfc_7628() -> None:
    token = Token(Secret("t0ken"), None, {"logicalCluster": "lkc-1", "pool": "p"})
    assert OAuthBearer(token).initial() == (
        b"n,,\x01auth=Bearer t0ken\x01logicalCluster=lkc-1\x01pool=p\x01\x01"
    )
    assert OAuthBearer(Token(Secret("t"))).initial() == b"n,,\x01auth=Bearer t\x01\x01"


def test_nothing_is_consent_and_json_is_a_refusal_that_must_be_answered() -> None:
    assert OAuthBearer(Token(Secret("t"))).respond(b"") is None
    refused = OAuthBearer(Token(Secret("t0ken")))
    refusal = b'{"status":"invalid_token","scope":"read","x":"t0ken"}'
    assert refused.respond(refusal) == b"\x01"
    assert refused.explain("") == "status invalid_token, scope read"
    assert refused.explain(refusal.decode()) == "status invalid_token, scope read"
    assert refused.explain("no t0ken") == "no *** (status invalid_token, scope read)"
    with pytest.raises(AuthenticationFailed, match="refused the token: status invalid_token"):
        refused.respond(refusal)
    for challenge in (b"\xff no json", b"[" * 200_000, b"[]", b'{"status":1}'):
        odd = OAuthBearer(Token(Secret("t")))
        odd.respond(challenge)
        assert odd.explain("") == "no reason given"
    # After a refusal there is no consent.
    with pytest.raises(AuthenticationFailed, match="refused the token: no reason given"):
        odd.respond(b"")
    rude = OAuthBearer(Token(Secret("t0ken")))
    rude.respond(b'{"status":"two\\n\\u001b[2Jlines of t0ken"}')
    assert rude.explain("") == "status two [2Jlines of ***"


@pytest.mark.parametrize("text", ["", "two words", "line\n", "a,b", "ctrl\x01x", "=a"])
def test_what_is_no_token_is_not_sent_and_not_shown(text: str) -> None:
    with pytest.raises(AuthenticationFailed, match="characters that a bearer token cannot") as e:
        check_token(text)
    assert not text or text not in str(e.value)
    assert check_token("Az09-._~+/==").reveal() == "Az09-._~+/=="


def test_extensions_have_names_of_letters() -> None:
    options = {"extension_ab": Secret("c d"), "clientId": Secret("x")}
    assert read_extensions(options, "extension_", "jaas") == {"ab": "c d"}
    for name, value in (("a1", "x"), ("auth", "x"), ("", "x"), ("ok", "\x01"), ("ok", "")):
        with pytest.raises(SettingError, match=f"extension_{name}"):
            read_extensions({f"extension_{name}": Secret(value)}, "extension_", "jaas")


@pytest.mark.parametrize(
    ("token", "expires_ms"),
    [
        (jwt(exp=1_700_000_000), 1_700_000_000_000),
        (jwt(exp=1.5), 1_500),
        (jwt(sub="no end"), None),
        (jwt(exp="soon"), None),
        ("opaque", None),
        ("a.b.c", None),
        ("a.%.c", None),
        (jwt(exp=float("inf")), None),
        (jwt(exp=float("nan")), None),
        ("a." + base64.urlsafe_b64encode(b"[" * 200_000).decode() + ".c", None),
    ],
)
def test_the_end_of_a_jwt_is_read(token: str, expires_ms: int | None) -> None:
    assert expiry_of(Secret(token)) == expires_ms


# --- unsecured tokens ----------------------------------------------------------------------------
@pytest.mark.parity("security: jaas: OAuthBearerLoginModule")
def test_an_unsecured_token_has_the_claims_of_the_options() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginNumberClaim_level": "3",
        "unsecuredLoginListClaim_scope": ",read,write",
        "unsecuredLoginLifetimeSeconds": "60",
        "unsecuredLoginExtension_team": "data",
    }
    token = unsecured_token({k: Secret(v) for k, v in options.items()}, 1_000_000, "jaas")
    claims = claims_of(token)
    assert claims == {
        "iat": 1_000,
        "exp": 1_060,
        "sub": "alice",
        "level": 3,
        "scope": ["read", "write"],
    }
    assert token.expires_ms == 1_060_000
    assert token.extensions == {"team": "data"}
    assert token.value.reveal().endswith(".")


def test_an_unsecured_token_needs_a_principal_and_numbers() -> None:
    with pytest.raises(SettingError, match=r'unsecuredLoginStringClaim_sub="alice"'):
        unsecured_token({}, 0, "jaas")
    named = {
        "unsecuredLoginPrincipalClaimName": Secret("user"),
        "unsecuredLoginStringClaim_user": Secret("bob"),
    }
    assert claims_of(unsecured_token(named, 0, "jaas"))["user"] == "bob"
    for name in ("unsecuredLoginLifetimeSeconds", "unsecuredLoginNumberClaim_x"):
        with pytest.raises(SettingError, match=f"{name} that is no number"):
            unsecured_token({**named, name: Secret("nan")}, 0, "jaas")


# --- renewal -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("life_min", "renewal", "after_min"),
    [
        (60, Renewal(), 48.0),  # 80 % of the token's lifetime
        (10, Renewal(), 5.0),  # five minutes before its end
        (5.5, Renewal(), 4.4),  # too short for both bounds: 80 % again
        (60, Renewal(0.5, 0, 40 * MINUTE_MS), 40.0),  # not after too short a use
    ],
)
def test_when_a_token_is_renewed(life_min: float, renewal: Renewal, after_min: float) -> None:
    token = Token(Secret("t"), 1_000 + int(life_min * MINUTE_MS))
    assert renew_at_ms(token, 1_000, renewal) == 1_000 + int(after_min * MINUTE_MS)


def test_a_token_without_an_end_is_asked_for_each_time() -> None:
    assert renew_at_ms(Token(Secret("t")), 5, Renewal()) == 5


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def test_a_token_is_used_until_it_is_due() -> None:
    clock = Clock()
    options = {"unsecuredLoginStringClaim_sub": Secret("alice")}
    source = TokenSource(UnsecuredTokens("jaas", options), Renewal(), now_ms=clock)
    first = source.token()
    clock.ms += 47 * MINUTE_MS
    assert source.token() is first
    clock.ms += 2 * MINUTE_MS
    assert source.token() is not first


# --- a user's own function -----------------------------------------------------------------------
GIVEN: list[dict[str, str]] = []
ANSWERS: list[object] = []


def token_function(options: dict[str, str]) -> object:
    GIVEN.append(options)
    answer = ANSWERS.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _from_function(clock: Clock, *answers: object) -> TokenSource:
    GIVEN.clear()
    ANSWERS[:] = answers
    function = UserFunction("kafka.x", f"{__name__}:token_function")
    login = TokenFunction(function, {"region": Secret("eu")}, {"e": "x"})
    return TokenSource(login, Renewal(), now_ms=clock)


@pytest.mark.parity("security: OAUTHBEARER token callback")
def test_a_function_gives_a_token_and_maybe_its_end() -> None:
    clock = Clock()
    source = _from_function(clock, ("one", clock.ms + 60 * MINUTE_MS), jwt(exp=10_000), "opaque")
    first = source.token()
    assert first == Token(Secret("one"), clock.ms + 60 * MINUTE_MS, {"e": "x"})
    assert source.token() is first
    clock.ms += 50 * MINUTE_MS
    assert source.token().expires_ms == 10_000_000
    clock.ms += 120 * MINUTE_MS
    assert source.token() == Token(Secret("opaque"), None, {"e": "x"})
    assert GIVEN == [{"region": "eu"}] * 3


@pytest.mark.parametrize(
    "answer", [None, b"bytes", ("t", "soon"), ("t", float("inf")), ("t", 1, 2), 7]
)
def test_what_a_function_must_not_give(answer: object) -> None:
    with pytest.raises(SettingError, match=r"kafka\.x: .*:token_function gave .* expected a token"):
        _from_function(Clock(), answer).token()


def test_what_a_function_raises_is_not_repeated() -> None:
    with pytest.raises(AuthenticationFailed, match="raised ValueError; it must give a tok") as e:
        _from_function(Clock(), ValueError("HIDDEN")).token()
    assert "HIDDEN" not in str(e.value)


def test_an_old_token_serves_while_it_lasts_and_no_new_one_comes() -> None:
    clock = Clock()
    lost = OSError("no network")
    source = _from_function(clock, ("one", clock.ms + 60 * MINUTE_MS), lost, lost, "two")
    first = source.token()
    clock.ms += 55 * MINUTE_MS
    assert source.token() is first
    clock.ms += 6 * MINUTE_MS
    with pytest.raises(AuthenticationFailed):
        source.token()
    assert source.token().value == Secret("two")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module_here:f", "no_such_module_here cannot be imported in .*--py-files"),
        (f"{__name__}:absent", "has no function absent"),
        (f"{__name__}:GIVEN", "has no function GIVEN"),
    ],
)
def test_a_function_that_is_not_there(name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        UserFunction("kafka.x", name).load()


# --- a file --------------------------------------------------------------------------------------
def test_a_token_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    source = TokenSource(TokenFile("kafka.url", str(path), {}), Renewal(), now_ms=Clock())
    with pytest.raises(AuthenticationFailed, match=r"kafka\.url .*token cannot be read here: No"):
        source.token()
    path.write_text("")
    with pytest.raises(AuthenticationFailed, match="is empty; expected a token"):
        source.token()
    path.write_text(f"{jwt(exp=20_000)}\n")
    assert source.token().expires_ms == 20_000_000
    path.write_bytes(b"\xff\xfe")
    source = TokenSource(TokenFile("kafka.url", str(path), {}), Renewal(), now_ms=Clock())
    with pytest.raises(AuthenticationFailed, match="it is not UTF-8 text"):
        source.token()
