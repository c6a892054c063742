"""A schema registry on loopback: the calls of Confluent's REST API that its Python client makes.

The registry keeps schemas in memory and checks no compatibility. `SchemaRegistry.requests` counts
the requests of each path, so that a test can show what a job asks for.
"""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

Registered = dict[str, Any]
"""A schema, its type and references, with its id, subject and version."""

_SCHEMA_KEYS = ("schema", "schemaType", "references")


class NotThere(Exception):
    """The registry's error 404 with Confluent's code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.body = {"error_code": code, "message": message}


class SchemaRegistry:
    """Use it in a with statement; ``url`` is its address."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._by_subject: dict[str, list[Registered]] = {}
        self._ids: dict[str, int] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, path: str, body: Registered) -> object:
        """Return the response to a request; raises NotThere for the status 404."""
        with self._lock:
            self.requests[f"{method} {path}"] += 1
            match method, *map(unquote, path.strip("/").split("/")):
                case "POST", "subjects", subject, "versions":
                    return self._register(subject, body)
                case "POST", "subjects", subject:
                    return self._look_up(subject, body)
                case "GET", "subjects", subject, "versions":
                    return [each["version"] for each in self._versions(subject)]
                case "GET", "subjects", subject, "versions", version:
                    return self._version(subject, version)
                case "GET", "schemas", "ids", number:
                    return self._schema(int(number))
        raise NotThere(404, f"HTTP 404 Not Found: {method} {path}")

    def _register(self, subject: str, schema: Registered) -> Registered:
        versions = self._by_subject.setdefault(subject, [])
        kept = {name: schema[name] for name in _SCHEMA_KEYS if schema.get(name)}
        # A schema has the same id in each of its subjects.
        number = self._ids.setdefault(json.dumps(kept, sort_keys=True), len(self._ids) + 1)
        if all(each["id"] != number for each in versions):
            version = {"id": number, "subject": subject, "version": len(versions) + 1}
            versions.append(kept | version)
        return {"id": number}

    def _look_up(self, subject: str, schema: Registered) -> Registered:
        for each in self._versions(subject):
            if each["schema"] == schema["schema"]:
                return each
        raise NotThere(40403, "Schema not found")

    def _versions(self, subject: str) -> list[Registered]:
        if subject not in self._by_subject:
            raise NotThere(40401, f"Subject '{subject}' not found.")
        return self._by_subject[subject]

    def _version(self, subject: str, version: str) -> Registered:
        versions = self._versions(subject)
        if version == "latest":
            return versions[-1]
        if not 1 <= int(version) <= len(versions):
            raise NotThere(40402, f"Version {version} not found.")
        return versions[int(version) - 1]

    def _schema(self, number: int) -> Registered:
        for each in (each for versions in self._by_subject.values() for each in versions):
            if each["id"] == number:
                return {name: each[name] for name in _SCHEMA_KEYS if name in each}
        raise NotThere(40403, f"Schema {number} not found")


def _handler(registry: SchemaRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve({})

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _serve(self, body: Registered) -> None:
            try:
                status, answer = 200, registry.answer(self.command, urlsplit(self.path).path, body)
            except NotThere as error:
                status, answer = 404, error.body
            sent = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *args: object) -> None:
            """Write no access log."""

    return Handler
