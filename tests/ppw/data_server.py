"""A server of files on 127.0.0.1 that can fail as servers do."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MISSING, BROKEN = "/missing", "/broken"


class _Files(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path.rpartition("/")[2])
        if content is None or self.path.startswith(MISSING):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.path.startswith(BROKEN):
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            self.wfile.write(content)

    def log_message(self, *arguments):
        """Say nothing."""


@contextmanager
def serving(files):
    """Serve files by name; yields the address, and the paths that were asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    server.files, server.asked = files, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
