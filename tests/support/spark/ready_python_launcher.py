"""Run by the script of `ready_python.py`: asks the socket named by its argument for a fork.

The launcher imports little, since Spark starts it hundreds of times. When the fork ends, the
launcher ends. SIGTERM, by which Spark ends the process, is passed on to the fork.
"""

import _socket
import marshal
import posix
import signal
import sys

asked = _socket.socket(_socket.AF_UNIX)
asked.connect(sys.argv[1])
told = marshal.dumps((posix.getcwdb(), posix.environ, sys.argv[2:]))
files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
lent = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)
asked.sendmsg([len(told).to_bytes(8, "big")], [lent])
asked.sendall(told)
fork = int.from_bytes(asked.recv(8), "big")
signal.signal(signal.SIGTERM, lambda *_: posix.kill(fork, signal.SIGTERM))
asked.recv(1)
