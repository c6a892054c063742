"""The health answer: whether the broker can do its work, and what it lacks."""

from __future__ import annotations

import json

from klog_broker.monitoring.collecting import Sources


def health(sources: Sources) -> tuple[bool, bytes]:
    """Whether the broker is ready, and the answer's JSON.

    ``state`` is loading while partitions of a coordinator load, stopping once the broker was told
    to stop, else ready. A data directory that is offline does not change it: all others serve.
    """
    loading = sources.loading()
    if sources.is_stopping():
        state = "stopping"
    else:
        state = "loading" if any(loading.values()) else "ready"
    offline = [str(each.path) for each in sources.services.logs.directories if each.is_offline]
    answer = {"state": state, "offline_directories": offline, "loading": loading}
    return state == "ready", json.dumps(answer).encode() + b"\n"
