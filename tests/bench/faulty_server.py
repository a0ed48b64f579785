"""A server with the rows of `tests.bench.faulty` that fails in one way: PORT TOKENIZER HOW AFTER.

It works for AFTER requests; then it ends, hangs, is slow, or answers with too few rows, NaN, rows
of another request, two rows swapped, an index twice, or every third time with 500.
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

import numpy as np
from tokenizers import Tokenizer

from tests.bench.faulty import row_of


def main() -> None:
    port, tokenizer_json, how, after = sys.argv[1:]
    tokenizer = Tokenizer.from_file(tokenizer_json)
    counter = itertools.count(1)
    before: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, {"data": [{"id": "its-own"}]} if how == "named" else {})

        def do_POST(self) -> None:  # "named": it knows its model by that name alone
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if how == "named" and body["model"] != "its-own":
                return self._answer(404, {"detail": "no such model"})
            right = [row_of(tokenizer.encode(text).ids) for text in body["input"]]
            rows, indexes, status = list(right), list(range(len(right))), 200
            number = next(counter)
            if number > int(after):
                if how == "ends":
                    print("out of memory", file=sys.stderr, flush=True)
                    os._exit(7)
                if how == "hangs":
                    threading.Event().wait()
                if how == "sleeps":
                    threading.Event().wait(1.5)
                if how == "too few":
                    rows = rows[:-1]
                if how == "500 every third" and number % 3 == 0:
                    status = 500
                if how == "nan":
                    rows[0] = rows[0] * np.float32(np.nan)
                if how == "another's" and len(before) == len(rows):
                    rows = list(before)
                if how == "swapped":
                    indexes[0], indexes[-1] = indexes[-1], indexes[0]
                if how == "index twice":
                    indexes[-1] = indexes[0]
            before[:] = right
            data = [
                {"index": i, "embedding": base64.b64encode(row.tobytes()).decode()}
                for i, row in zip(indexes, rows, strict=False)
            ]
            return self._answer(status, {"data": data})

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
