"""Peers that a server of this process answers for, on the loopback."""

import contextlib
import socket
import threading

LOCAL = "127.0.0.1"


class LoopbackPeer:
    """A context manager that stops its server, which has its connections in ``open``."""

    def serve(self, server):
        self.server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def hang_up(self):
        for connection in tuple(self.server.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self):
        """Stop listening and hang up; a second call does nothing."""
        self.server.shutdown()
        self.hang_up()
        self.server.server_close()
        self._thread.join()
