"""Listeners: their syntax, advertised addresses, and refused values."""

import socket

import pytest

from klog_broker.config import BrokerConfig, ConfigError, Listener


def load(**settings: str) -> BrokerConfig:
    return BrokerConfig.load(overrides={k.replace("_", "."): v for k, v in settings.items()})


def problem(**settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**settings)
    return str(caught.value)


def test_loopback_by_default() -> None:
    config = load()
    assert config.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_listeners == config.listeners


def test_several_with_names_of_their_own() -> None:
    config = load(
        listeners="inside://10.0.0.1:9092, OUTSIDE://[::1]:9093",
        listener_security_protocol_map="INSIDE:PLAINTEXT,outside:plaintext",
        advertised_listeners="OUTSIDE://b.example.org:29093,INSIDE://10.0.0.1:9092",
    )
    assert [str(each) for each in config.listeners] == [
        "INSIDE://10.0.0.1:9092",
        "OUTSIDE://[::1]:9093",
    ]
    assert config.advertised_listeners[0].host == "b.example.org"


def test_an_empty_host_is_all_interfaces_and_advertised_by_name() -> None:
    config = load(listeners="PLAINTEXT://:9092")
    assert config.listeners[0].host == ""
    assert config.advertised_listeners[0].host == socket.gethostname()


def test_one_port_for_ipv4_and_ipv6() -> None:
    config = load(
        listeners="A://0.0.0.0:9092,B://[::]:9092",
        advertised_listeners="A://h:9092",
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
    )
    assert [each.port for each in config.listeners] == [9092, 9092]


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"listeners": ""}, "listeners is empty: name at least one listener"),
        (
            {"listeners": "PLAINTEXT:127.0.0.1:9092"},
            "listeners: 'PLAINTEXT:127.0.0.1:9092' is not NAME://host:port"
            " (as PLAINTEXT://127.0.0.1:9092)",
        ),
        (
            {"listeners": "PLAINTEXT://h:65536"},
            "listeners: the port of 'PLAINTEXT://h:65536' must be at most 65535",
        ),
        (
            {"listeners": "PLAINTEXT://h:" + "9" * 9999},
            "listeners: the port of 'PLAINTEXT://h:" + "9" * 9999 + "' must be at most 65535",
        ),
        (
            {"listeners": "MINE://h:1"},
            "listeners: no protocol is given for the listener MINE: add MINE:PLAINTEXT to"
            " listener.security.protocol.map",
        ),
        (
            {"listeners": "SSL://h:1"},
            "listeners: the listener SSL asks for SSL, but this release serves PLAINTEXT only",
        ),
        (
            {"listeners": "PLAINTEXT://h:1,plaintext://i:2"},
            "listeners: the name PLAINTEXT is used twice",
        ),
        (
            {
                "listeners": "A://h:1,B://i:1",
                "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
            },
            "listeners: the port 1 is used twice",
        ),
        (
            {"listener_security_protocol_map": "A=PLAINTEXT"},
            "listener.security.protocol.map: 'A=PLAINTEXT' is not NAME:PROTOCOL with a protocol out"
            " of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            {
                "advertised_listeners": "B://h:1",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "advertised.listeners: B is not among the listeners (PLAINTEXT)",
        ),
        (
            {"advertised_listeners": "PLAINTEXT://h:1,PLAINTEXT://i:1"},
            "advertised.listeners: the name PLAINTEXT is used twice",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners: PLAINTEXT://0.0.0.0:9092 is no address that a client can connect"
            " to; name a host",
        ),
        (
            {"advertised_listeners": "PLAINTEXT://:1"},
            "advertised.listeners: PLAINTEXT://:1 is no address that a client can connect to; name"
            " a host",
        ),
    ],
)
def test_refusals(settings: dict[str, str], expected: str) -> None:
    assert problem(**settings) == expected


def test_controllers_listeners_are_neither_opened_nor_advertised() -> None:
    config = load(
        listeners="CONTROLLER://:9093,PLAINTEXT://127.0.0.1:9092,ADMIN://:9093",
        controller_listener_names="controller, ADMIN",
        advertised_listeners="CONTROLLER://a:9093,PLAINTEXT://b:9092",
        # Their protocols do not matter, and need not be given.
        listener_security_protocol_map="CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
    )
    assert [str(each) for each in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert [str(each) for each in config.advertised_listeners] == ["PLAINTEXT://b:9092"]


def test_the_port_option_is_the_first_opened_listeners() -> None:
    text = (
        "listeners=CONTROLLER://:9093,PLAINTEXT://h:9092,X://h:1\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,X:PLAINTEXT\n"
    )
    config = BrokerConfig.load(text=text, port=7)
    assert [each.port for each in config.listeners] == [7, 1]


def test_controllers_listeners_without_others_are_refused() -> None:
    assert problem(listeners="C://:1", controller_listener_names="C") == (
        "listeners: all listeners are in controller.listener.names, and klog opens none of these;"
        " name a listener for clients"
    )


def test_metrics_have_no_listener_unless_one_is_named() -> None:
    assert load().metrics_listener is None
    assert load(metrics_listener=" ").metrics_listener is None


@pytest.mark.parametrize(
    "text, host, port",
    [
        ("127.0.0.1:9404", "127.0.0.1", 9404),
        (" localhost:0 ", "localhost", 0),
        ("[::1]:9404", "::1", 9404),
        (":9404", "", 9404),
        ("0.0.0.0:9404", "", 9404),
    ],
)
def test_the_metrics_listener_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert load(metrics_listener=text).metrics_listener == (host, port)


@pytest.mark.parametrize("text", ["9404", "http://a:1", "a:65536", "a:123456", "a:-1", "a:1/x"])
def test_another_metrics_listener_is_refused(text: str) -> None:
    assert f"metrics.listener: '{text}' is not host:port" in problem(metrics_listener=text)


def test_metrics_do_not_share_a_port_with_clients() -> None:
    assert problem(metrics_listener="127.0.0.1:9092") == (
        "metrics.listener: port 9092 is the port of one of `listeners`"
    )
    load(metrics_listener="10.0.0.1:9092")
    load(listeners="PLAINTEXT://127.0.0.1:0", metrics_listener="127.0.0.1:0")
