"""A Python for Spark in which stream sources and Spark's daemons are forked, not started.

Spark starts a process for each run of a stream, and a daemon for each of its worker programs; a
daemon forks a worker for each task that finds no idle worker. Most of the work of such a process
(0.4 s of a core for a source, 1 s for a worker that reads) is importing modules and loading
kernels. Here Spark runs a script instead of Python. For a source or a daemon, the script runs a
small launcher, which asks a process with loaded modules for a fork and passes its own files and
arguments to the fork (`main`). For any other program, the script executes Python.
"""

import array
import atexit
import functools
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
DAEMON = "pyspark.daemon"
_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_LAUNCHER = Path(__file__).with_name("ready_python_launcher.py")
_PROGRAMS = (MODULE, DAEMON)
# klog looks in sys.modules for Spark's programs for planning and writing: they must be absent here,
# except the one that the program of a source imports.
_IMPORTED = (
    *_PROGRAMS,
    "pandas",
    "pyspark.worker",
    "pyspark_klog.client.cluster.blocking_client",
    "pyspark_klog.records.arrow_decode",
    "pyspark_klog.records.arrow_encode",
    "pyspark_klog.spark.data_source",
    "pyspark_klog.spark.source.stream_reader",
)
# Threads, which numpy and pyarrow would begin when they are imported, are not forked. The
# other settings are those with which Spark starts its daemons.
_SETTINGS = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "YES",
}
_FILES = 3
_NUMBER_BYTES = 8
_LONGEST_ADDRESS = 100
"""Longest path of a socket in the file system; the shortest limit of a system is 104."""


@contextmanager
def forked_processes() -> Iterator[None]:
    """JVMs that start within the with block get forked processes, until this process ends."""
    script = python()
    if script is None:
        yield
        return
    usual = {name: os.environ.get(name, sys.executable) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, script))
    try:
        yield
    finally:
        os.environ.update(usual)


@functools.cache
def python() -> str | None:
    """Return the script's path, None if neither Spark nor a socket takes the path of its folder.

    The first call makes the script, and starts the process that forks, which ends with this one.
    """
    folder = Path(tempfile.mkdtemp(prefix="klog-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if " " in str(folder) or len(str(folder)) > _LONGEST_ADDRESS - len("/ready"):
        return None
    address, script = folder / "ready", folder / "python"
    interpreter = shlex.quote(sys.executable)
    asking = shlex.join([sys.executable, "-I", "-S", str(_LAUNCHER), str(address)])
    script.write_text(
        "#!/bin/sh\n"
        f'case "$1 $2" in "-m {MODULE}" | "-m {DAEMON}") exec {asking} "$@" ;; esac\n'
        f'exec {interpreter} "$@"\n',
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
            env=os.environ | _SETTINGS,
        )
    atexit.register(
        ready.communicate
    )  # the end of its stdin, however this process ends, is its end
    return str(script)


def main(listening: int) -> None:
    """Import, then fork for each connection to the socket ``listening``, until stdin ends."""
    for name in _IMPORTED:
        importlib.import_module(name)
    for name in _PROGRAMS:  # a fork runs one of them as its program
        del sys.modules[name]
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    asking = _until_forked(listening)
    if asking is None:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, program, *rest = _become(asking)
    sys.argv[1:] = rest
    # The end of the connection shows the launcher that this process has ended.
    runpy.run_module(program, run_name="__main__", alter_sys=True)


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


def _become(asking: socket.socket) -> list[str]:
    """Take over the launcher's files, folder and environment, and send back the process id.

    Return the arguments that Spark gave to Python.
    """
    most = socket.CMSG_SPACE(_FILES * array.array("i").itemsize)
    header, ancillary, _, _ = asking.recvmsg(_NUMBER_BYTES, most)
    for number, file in enumerate(array.array("i", ancillary[0][2])):
        os.dup2(file, number)
        os.close(file)
    left, told = int.from_bytes(header, "big"), b""
    while len(told) < left:
        told += asking.recv(left - len(told))
    folder, environment, arguments = marshal.loads(told)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    asking.sendall(os.getpid().to_bytes(_NUMBER_BYTES, "big"))
    return arguments


if __name__ == "__main__":
    main(int(sys.argv[1]))
