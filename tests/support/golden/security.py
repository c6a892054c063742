"""Records SASL handshakes between Apache Kafka's own client and broker, through a proxy.

`python -m tests.support.golden.security` (after `./dev peers`) writes tests/golden/security.
A transcript is the frames of one connection up to the end of its authentication, without their
sizes: each frame's sender (client or broker) and bytes. The folder also has
stores by Java's keytool.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, ROOT, KafkaServer
from tests.support.security.kafka_listeners import (
    MECHANISMS,
    SCRAM_USERS,
    jaas,
    java_client_properties,
    list_topics,
    sasl_properties,
)
from tests.support.security.server import receive_frame

FOLDER = ROOT / "tests" / "golden" / "security"
_SASL = {17: "SaslHandshake", 36: "SaslAuthenticate"}
_ALL, _SCOPED, _PLAIN = "SECURED", "SCOPED", "PLAINONLY"

CASES: tuple[tuple[str, str, str, str], ...] = (
    *((mechanism.lower(), _ALL, mechanism, jaas(mechanism)) for mechanism in MECHANISMS),
    ("plain-refused", _ALL, "PLAIN", jaas("PLAIN", password="other")),
    ("scram-sha-256-refused", _ALL, "SCRAM-SHA-256", jaas("SCRAM-SHA-256", password="other")),
    ("oauthbearer-refused", _SCOPED, "OAUTHBEARER", jaas("OAUTHBEARER")),
    ("unknown-mechanism", _PLAIN, "SCRAM-SHA-256", jaas("SCRAM-SHA-256")),
)
"""Name, listener, mechanism, and the client's sasl.jaas.config."""


def _properties() -> dict[str, str]:
    properties = sasl_properties(_ALL) | sasl_properties(_PLAIN, ("PLAIN",))
    properties |= sasl_properties(_SCOPED, ("OAUTHBEARER",))
    scoped = f"listener.name.{_SCOPED.lower()}.oauthbearer."
    config = jaas("OAUTHBEARER").replace(";", ' unsecuredValidatorRequiredScope="write";')
    properties[f"{scoped}sasl.jaas.config"] = config
    # A session that ends: the last reply says after how many ms.
    properties[f"listener.name.{_ALL.lower()}.plain.connections.max.reauth.ms"] = "60000"
    return properties


class Recorder:
    """A proxy that keeps the frames of its first connection up to the end of SASL."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.frames: list[tuple[str, bytes]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                kept = not self.frames
                with client, socket.create_connection(self._target) as broker:
                    client.settimeout(30)
                    broker.settimeout(30)
                    with contextlib.suppress(OSError, EOFError):
                        while True:
                            for who, source, to in (
                                ("client", client, broker),
                                ("broker", broker, client),
                            ):
                                frame = receive_frame(source)
                                if kept:
                                    self.frames.append((who, frame))
                                to.sendall(len(frame).to_bytes(4, "big") + frame)

    def transcript(self) -> list[list[str]]:
        """The requests of SASL with their replies; the rest of the connection is left out."""
        kept: list[list[str]] = []
        pairs = zip(self.frames[::2], self.frames[1::2], strict=False)
        for (_, request), (_, reply) in pairs:
            name = _SASL.get(int.from_bytes(request[:2], "big"))
            if name is not None:
                kept += [["client", name, request.hex()], ["broker", name, reply.hex()]]
        return kept


STORE_PASSWORD = "store-passw0rd"


def make_stores() -> None:
    """A keystore in PKCS12, its certificate in PEM, and truststores with it in PKCS12 and JKS."""

    def keytool(*arguments: str) -> None:
        command = ["keytool", *arguments, "-alias", "golden", "-storepass", STORE_PASSWORD]
        subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, timeout=60)

    key = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "36500")
    name = ("-dname", "CN=golden", "-ext", "san=dns:localhost")
    keytool("-genkeypair", *key, *name, "-keystore", "keystore.p12", "-storetype", "PKCS12")
    keytool("-exportcert", "-rfc", "-keystore", "keystore.p12", "-file", "golden.pem")
    for kind, file in (("PKCS12", "truststore.p12"), ("JKS", "truststore.jks")):
        given = ("-importcert", "-noprompt", "-file", "golden.pem")
        keytool(*given, "-keystore", file, "-storetype", kind)


def main() -> None:
    """Records every case on both releases."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    make_stores()
    for version in (OLDEST_KAFKA, NEWEST_KAFKA):
        with (
            KafkaServer(
                version,
                listeners=dict.fromkeys((_ALL, _SCOPED, _PLAIN), "SASL_PLAINTEXT"),
                properties=_properties(),
                format_arguments=SCRAM_USERS,
            ) as server,
            tempfile.TemporaryDirectory() as folder,
        ):
            for name, listener, mechanism, config in CASES:
                host, _, port = server.address_of(listener).partition(":")
                file = java_client_properties(mechanism, config, Path(folder))
                with Recorder((host, int(port))) as recorder:
                    list_topics(server, f"127.0.0.1:{recorder.port}", file)
                    content = {
                        "writer": f"Apache Kafka {version}: org.apache.kafka.tools.TopicCommand "
                        "and its broker",
                        "mechanism": mechanism,
                        "jaas": config,
                        "frames": recorder.transcript(),
                    }
                path = FOLDER / f"kafka-{version}-{name}.json"
                path.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")
                print(path.name, [each[:2] for each in content["frames"]])


if __name__ == "__main__":
    main()
