"""A Python for Spark in which the process of a stream's source is forked, not started.

Spark starts that process again for each run of a stream, and nine tenths of the work of a start
(0.4 s of a core) are imports. Here Spark runs a script instead of Python. For a source, the script
runs a small launcher, which asks a process with loaded modules for a fork and passes its own files
to the fork (`main`). For any other program, the script executes Python.
"""

import array
import atexit
import gc
import importlib
import marshal
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_LAUNCHER = Path(__file__).with_name("ready_python_launcher.py")
_IMPORTED = (
    MODULE,
    "pyspark_klog.client.cluster.blocking_client",
    "pyspark_klog.spark.data_source",
    "pyspark_klog.spark.source.stream_reader",
)
# Threads, which numpy and pyarrow would begin when they are imported, are not forked.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_FILES = 3
_NUMBER_BYTES = 8
_LONGEST_ADDRESS = 100
"""Longest path of a socket in the file system; the shortest limit of a system is 104."""


@contextmanager
def forked_stream_sources() -> Iterator[None]:
    """JVMs that start within the with block get forked sources, until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="klog-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if " " in str(folder) or len(str(folder)) > _LONGEST_ADDRESS - len("/ready"):
        yield  # neither Spark nor a socket takes this path
        return
    usual = {name: os.environ[name] for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, python(folder)))
    try:
        yield
    finally:
        os.environ.update(usual)


def python(folder: Path) -> str:
    """Make the script in ``folder``; the process that forks ends with this one."""
    address, script = folder / "ready", folder / "python"
    interpreter = shlex.quote(sys.executable)
    asking = shlex.join([sys.executable, "-I", "-S", str(_LAUNCHER), str(address)])
    script.write_text(
        f'#!/bin/sh\n[ "$2" != {MODULE} ] || exec {asking}\nexec {interpreter} "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        ready = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=(listener.fileno(),),
            env=os.environ | _NO_THREADS,
        )
    atexit.register(
        ready.communicate
    )  # the end of its stdin, however this process ends, is its end
    return str(script)


def main(listening: int) -> None:
    """Import, then fork for each connection to the socket ``listening``, until stdin ends."""
    for name in _IMPORTED:
        importlib.import_module(name)
    del sys.modules[MODULE]  # each fork has it as its program
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    asking = _until_forked(listening)
    if asking is None:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _become(asking)
    # The end of the connection shows the launcher that this process has ended.
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


def _until_forked(listening: int) -> socket.socket | None:
    """Return the launcher's connection in each fork, None in the process that forks."""
    with socket.socket(fileno=listening) as listener:
        while True:
            if 0 in select.select([0, listener.fileno()], [], [])[0]:
                return None
            asking, _ = listener.accept()
            if os.fork() == 0:
                return asking
            asking.close()


def _become(asking: socket.socket) -> None:
    """Take over the launcher's files, folder and environment, and send back the process id."""
    most = socket.CMSG_SPACE(_FILES * array.array("i").itemsize)
    header, ancillary, _, _ = asking.recvmsg(_NUMBER_BYTES, most)
    for number, file in enumerate(array.array("i", ancillary[0][2])):
        os.dup2(file, number)
        os.close(file)
    left, told = int.from_bytes(header, "big"), b""
    while len(told) < left:
        told += asking.recv(left - len(told))
    folder, environment = marshal.loads(told)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    asking.sendall(os.getpid().to_bytes(_NUMBER_BYTES, "big"))


if __name__ == "__main__":
    main(int(sys.argv[1]))
