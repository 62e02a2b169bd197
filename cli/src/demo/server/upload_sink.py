"""Keeps the uploads to a proxy in front of it: HTTP/1.1 on the loopback interface, Python's own server."""

import argparse
import pathlib
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = 64 * 1024


class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: pathlib.Path

    def do_PUT(self):
        # Only plain names: no request reaches a file outside the folder.
        name = self.path.lstrip("/")
        length = self.headers.get("content-length", "")
        if "/" in name or name in ("", ".", "..") or not length.isdigit():
            self.send_error(400)
            return
        left = int(length)
        with open(self.files / name, "wb") as file:
            while left > 0:
                # Received data is written at once: an upload may be cut off.
                chunk = self.rfile.read1(min(left, CHUNK))
                if not chunk:
                    self.close_connection = True
                    return
                file.write(chunk)
                left -= len(chunk)
        self.send_response(201)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    # A handler whose client has gone does not keep the program from ending.
    daemon_threads = True
    block_on_close = False


def main():
    parser = argparse.ArgumentParser()
    for option in ("files", "ready"):
        parser.add_argument("--" + option, required=True)
    options = parser.parse_args()
    Sink.files = pathlib.Path(options.files)
    server = Server(("127.0.0.1", 0), Sink)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ready = pathlib.Path(options.ready)
    unfinished = ready.with_suffix(".part")
    unfinished.write_text(str(server.server_port))
    unfinished.rename(ready)
    server.serve_forever()


main()
