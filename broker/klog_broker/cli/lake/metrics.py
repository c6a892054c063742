"""The metrics of `klog lake run`, over HTTP in Prometheus' text format."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click

from klog_broker.monitoring.text import CONTENT_TYPE, labels
from pyspark_klog.lake_tables.errors import LakeError
from pyspark_klog.lake_tables.writer import LakeWriter

METRICS = {
    "klog_lake_records_total": ("counter", "Records that were committed to the table."),
    "klog_lake_file_bytes_total": ("counter", "Bytes of the files that were committed."),
    "klog_lake_commits_total": ("counter", "Commits that have succeeded."),
    "klog_lake_failed_commits_total": (
        "counter",
        "Commits that have failed, or that another writer has forestalled.",
    ),
    "klog_lake_commit_seconds": ("gauge", "How long the last commit took."),
    "klog_lake_border_offset": ("gauge", "The next offset to copy."),
    "klog_lake_lag_offsets": ("gauge", "How many offsets the table is behind the topic."),
}
"""The kind and the help text of each metric, by name."""


def metrics_text(writer: LakeWriter) -> str:
    """Return the metrics of all topics."""
    samples: dict[str, list[str]] = {name: [] for name in METRICS}
    for copier in writer.copiers:
        of, counts = labels(topic=copier.topic), copier.counts
        for name, value in (
            ("klog_lake_records_total", counts.records),
            ("klog_lake_file_bytes_total", counts.file_bytes),
            ("klog_lake_commits_total", counts.commits),
            ("klog_lake_failed_commits_total", counts.failed_commits),
            ("klog_lake_commit_seconds", counts.commit_ms / 1000),
        ):
            samples[name].append(f"{name}{of} {value}")
        backlog = writer.backlogs.get(copier.topic)
        for number, offset in sorted(backlog.border.items() if backlog else ()):
            of = labels(topic=copier.topic, partition=number)
            lag = backlog.behind.get(number, 0) if backlog else 0
            samples["klog_lake_border_offset"].append(f"klog_lake_border_offset{of} {offset}")
            samples["klog_lake_lag_offsets"].append(f"klog_lake_lag_offsets{of} {lag}")
    lines: list[str] = []
    for name, (kind, meaning) in METRICS.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *samples[name]]
    return "\n".join([*lines, ""])


@contextmanager
def serve_metrics(writer: LakeWriter, port: int) -> Iterator[None]:
    """Serve GET /metrics on the loopback address while the block runs.

    :raises LakeError: if the port is in use
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            """Answer a request."""
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = metrics_text(writer).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log no requests."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise LakeError(
            f"--metrics-port {port} cannot be used: {error.strerror}; choose another port"
        ) from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    click.echo(f"metrics are at http://127.0.0.1:{server.server_address[1]}/metrics", err=True)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
