"""Lines of text between this process and the process that has started it, over an inherited
socket."""

import socket

_RECEIVE_BYTES = 65_536


class ParentChannel:
    """One end of a socket pair, whose other end the process has that started this one."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        # Child processes of this one must not keep the channel open.
        self._socket.set_inheritable(False)
        self._received = b""

    def fileno(self) -> int:
        """Return the descriptor, for the poller."""
        return self._socket.fileno()

    def receive_lines(self) -> list[str] | None:
        """Return the lines that have arrived, without waiting; None at the end of the channel."""
        try:
            some = self._socket.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        if not some:
            return None
        *lines, self._received = (self._received + some).split(b"\n")
        return [line.decode("utf-8") for line in lines]

    def send_line(self, line: str) -> None:
        """Send a line. Blocks only if the other process does not read its lines."""
        try:
            self._socket.sendall(line.encode("utf-8") + b"\n")
        except OSError:
            # The other process has ended: the next receive_lines returns None.
            return

    def close(self) -> None:
        """Close this end of the channel."""
        self._socket.close()
