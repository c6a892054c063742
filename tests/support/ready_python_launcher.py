"""What the script of `ready_python.py` runs to ask for a fork: one argument, where.

It imports little, since Spark starts it hundreds of times. It ends with the
fork, and gives SIGTERM on, by which Spark ends a stream's source.
"""

import _socket
import marshal
import posix
import signal
import sys

asked = _socket.socket(_socket.AF_UNIX)
asked.connect(sys.argv[1])
told = marshal.dumps((posix.getcwdb(), posix.environ))
files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
lent = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)
asked.sendmsg([len(told).to_bytes(8, "big")], [lent])
asked.sendall(told)
fork = int.from_bytes(asked.recv(8), "big")
signal.signal(signal.SIGTERM, lambda *_: posix.kill(fork, signal.SIGTERM))
asked.recv(1)
