"""Setting names that Kafka's Java clients lack: finds the setting that a user meant. Pure.

Java's clients log a warning about an unknown name and ignore it. klog does the same for the
connector's options, but refuses an unknown name if ignoring it would change how connections are
secured, or which records are read.
"""

import re
from collections.abc import Collection

from pyspark_klog.client.settings.setting_rows import SETTINGS, Effect
from pyspark_klog.security.config import uses_sasl, uses_tls
from pyspark_klog.security.jaas import EXAMPLE

RENAMED: dict[str, str] = {
    # Settings of Kafka's clients before 0.9, and of Kafka's producers before 1.0 ("brokers" is a
    # name of KafkaJS)
    "broker.list": "bootstrap.servers",
    "metadata.broker.list": "bootstrap.servers",
    "brokers": "bootstrap.servers",
    "auto.commit.enable": "enable.auto.commit",
    "block.on.buffer.full": "max.block.ms",
    "metadata.fetch.timeout.ms": "max.block.ms",
    "timeout.ms": "request.timeout.ms",
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    # Settings of librdkafka
    "batch.num.messages": "batch.size",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.kbytes": "buffer.memory",
    "receive.message.max.bytes": "fetch.max.bytes",
    "reconnect.backoff.jitter.ms": "reconnect.backoff.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    # The setting ssl_cafile of kafka-python, and names that a user may guess
    "ssl.cafile": "ssl.truststore.location",
    "ssl.keystore.path": "ssl.keystore.location",
    "ssl.truststore.path": "ssl.truststore.location",
}
"""Settings of other clients and of Kafka's early releases, and names that a user may guess, each
with the name of that setting in Kafka's Java clients."""

_DECIDES_MORE_THAN_SPEED = ("security.protocol", "isolation.level")
_LOGINS = (
    "sasl.jaas.config",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.token.endpoint.url",
)
_PASSWORDS = ("sasl.username", "sasl.password", "sasl.user")
_KERBEROS = ("sasl.kerberos.keytab", "sasl.kerberos.principal")

_OWNERS = (
    (
        re.compile(
            r"consumer\.timeout\.ms|rebalance\.|offsets\.(storage|channel|commit)|dual\.commit"
        ),
        "it belongs to Kafka's consumer before 0.9",
    ),
    (
        re.compile(
            r"schema\.registry\.|basic\.auth\.|auto\.register\.schemas|use\.latest\.version|"
            r"specific\.(avro|protobuf)|avro\.|json\.(fail|value)|normalize\.schemas|"
            r".*subject\.name\.strategy|(key|value)\.converter|(key|value)\.format"
        ),
        "it belongs to the serializers of a schema registry, and Spark's columns are bytes: decode "
        "them in the query, as with from_avro",
    ),
    (
        re.compile(
            r"zookeeper\.|advertised\.|listener|inter\.broker|security\.inter\.broker|"
            r"sasl\.enabled\.mechanisms|sasl\.mechanism\.inter|ssl\.client\.auth|broker\.id|"
            r"auto\.create\.topics|delete\.topic|num\.partitions|(default\.)?replication\.factor|"
            r"min\.insync|retention\.|cleanup\.policy|segment\.|log\.(?!connection)|"
            r"offsets\.topic|transaction\.state|message\.max\.bytes|max\.message\.bytes"
        ),
        "it belongs to brokers and topics, and a client does not have it",
    ),
    (
        re.compile(
            r"sasl\.(username|password)$|api\.version\.|broker\.(version|address)|queued\.|queue\.|statistics\.|debug$|"
            r"socket\.|enable\.(partition\.eof|auto\.offset|gapless|ssl|sasl|random)|offset\.store|"
            r"log\.connection|enabled_events|topic\.|coordinator\.query|consume\.callback|ssl\.crl|"
            r"sticky\.partitioning|message\.(copy|send)|delivery\.report|compression\.level|"
            r"builtin\.|allow\.auto\.create"
        ),
        "it belongs to librdkafka",
    ),
)
_SIDES = re.compile(r"(kafka|consumer|producer|admin|client|spark)\.")
_SHORTEST_BEGINNING = 5
_SHORTEST_FOR_TWO = 10
"""An unknown name of at least this length still counts as a known setting's name if up to two
letters are wrong; a shorter name if one letter is wrong."""


def find_similar_setting(name: str, known: Collection[str] = SETTINGS) -> str | None:
    """The setting among ``known`` that a name stands for; None if the meaning is unclear.

    Recognizes other clients' names, a prefix such as ``consumer.``, a missing end, words in
    another order, and at most two wrong letters. If a name belongs to brokers or another program
    (see `_OWNERS`), only other clients' names and a missing end are tried: a known setting that is
    spelled nearly like this name would be the wrong one.
    """
    plain = re.sub("[_-]", ".", name.strip().lower())
    found = RENAMED.get(plain, plain)
    if found in known:
        return found
    longer = [each for each in known if each.startswith(plain)]
    if f"{plain}.ms" in longer:
        return f"{plain}.ms"
    if len(longer) == 1 and len(plain) >= _SHORTEST_BEGINNING:
        return longer[0]
    if _owner(plain) is not None:
        return None
    side = _SIDES.match(plain)
    if side is not None:
        return find_similar_setting(plain[side.end() :], known)
    words = sorted(plain.split("."))
    for each in known:
        if sorted(each.split(".")) == words:
            return each
    most = 2 if len(plain) >= _SHORTEST_FOR_TWO else 1
    near = [(_distance(plain, each, most), each) for each in known]
    distance, nearest = min(near, default=(most + 1, ""))
    return nearest if distance <= most else None


def unknown_text(name: str, prefix: str = "") -> str:
    """The error message about an unknown setting name, with the setting that was probably meant."""
    return f"{prefix}{name} is no setting of Kafka's clients{_hint(name, prefix)}"


def ignored_text(name: str, given: Collection[str], prefix: str, note: str | None) -> str:
    """Why klog ignores an unknown setting ``name``, as a clause for a warning.

    ``given`` are the names of all settings that the user gave. ``note`` is the caller's own
    explanation of the name, which replaces the hint at the setting that was probably meant; None if
    the caller has none.
    """
    meant = find_similar_setting(name)
    if note:
        hint = f"; {note}"
    elif meant is not None and meant in given:
        hint = f"; {prefix}{meant}, which is given, too, is used"
    else:
        hint = _hint(name, prefix)
    return f"it is no setting of Kafka's clients{hint}"


def refusal(name: str, given: Collection[str], protocol: str, prefix: str) -> str | None:
    """Why klog must refuse the unknown setting ``name``, as a sentence; None if klog may ignore it.

    ``given`` are the names of all settings that the user gave, ``protocol`` is security.protocol.
    """
    if name in (*_PASSWORDS, *_KERBEROS):
        has_login = uses_sasl(protocol) and any(login in given for login in _LOGINS)
        return None if has_login else _no_login(name, prefix)
    meant = find_similar_setting(name)
    if meant is None or meant in given or SETTINGS[meant].effect is not Effect.APPLIED:
        return None
    secures = (meant.startswith("ssl.") and uses_tls(protocol)) or (
        meant.startswith("sasl.") and uses_sasl(protocol)
    )
    if not secures and meant not in _DECIDES_MORE_THAN_SPEED:
        return None
    default = SETTINGS[meant].default
    stays = "unset" if default is None else default
    return (
        f"{prefix}{name} is no setting of Kafka's clients; did you mean {prefix}{meant}? "
        f"Without it {prefix}{meant} would stay {stays}"
    )


def _no_login(name: str, prefix: str) -> str:
    if name in _KERBEROS:
        return (
            f"{prefix}{name} is for GSSAPI (Kerberos), which is not supported, and no other login "
            f"is given: set {prefix}security.protocol, {prefix}sasl.mechanism (PLAIN, "
            f"SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER) and {prefix}sasl.jaas.config"
        )
    return (
        f"{prefix}{name} is a setting of librdkafka, and no login would be made with it: set "
        f"{prefix}security.protocol, {prefix}sasl.mechanism and {prefix}sasl.jaas.config, as in "
        f"{EXAMPLE}"
    )


def _hint(name: str, prefix: str) -> str:
    meant = find_similar_setting(name)
    if meant is not None:
        row = SETTINGS[meant]
        if row.effect is Effect.NONE:
            return f"; {prefix}{meant} has no effect either: {row.without}"
        return f"; did you mean {prefix}{meant}?"
    owner = _owner(name.lower())
    return "" if owner is None else f"; {owner}"


def _owner(name: str) -> str | None:
    return next((words for pattern, words in _OWNERS if pattern.match(name)), None)


def _distance(one: str, other: str, most: int) -> int:
    """The number of letters to insert, remove, replace or swap with the next letter to turn ``one``
    into ``other``. The number is exact only if it is at most ``most``."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        previous, row = row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
        before = previous
    return row[-1]
