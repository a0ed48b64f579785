"""A server with the rows of `tests.bench.faulty` that fails in one way: PORT TOKENIZER HOW AFTER.

It works for AFTER requests; then it ends, hangs, answers with too few rows, or with 500.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tokenizers import Tokenizer

from tests.bench.faulty import row_of


def main() -> None:
    port, tokenizer_json, how, after = sys.argv[1:]
    tokenizer = Tokenizer.from_file(tokenizer_json)
    counter = itertools.count(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            rows = [row_of(tokenizer.encode(text).ids) for text in body["input"]]
            status = 200
            if next(counter) > int(after):
                if how == "ends":
                    print("out of memory", file=sys.stderr, flush=True)
                    os._exit(7)
                if how == "hangs":
                    threading.Event().wait()
                if how == "too few":
                    rows = rows[:-1]
                if how == "500":
                    status = 500
            data = [
                {"index": i, "embedding": base64.b64encode(row.tobytes()).decode()}
                for i, row in enumerate(rows)
            ]
            self._answer(status, {"data": data})

        def log_message(self, *args: Any) -> None:
            pass

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
