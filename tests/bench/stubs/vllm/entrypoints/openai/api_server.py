"""vLLM's server, as far as the bench uses it."""

from __future__ import annotations

import argparse
import base64
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from hotbed.bench.adapters.protocol import Item
from vllm import load


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--model", "--served-model-name", "--host", "--runner", "--dtype"):
        parser.add_argument(name, required=True)
    for name in ("--port", "--max-model-len", "--max-num-batched-tokens"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--kv-cache-memory-bytes", type=int)
    parser.add_argument("--gpu-memory-utilization", type=float, required=True)
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction)
    parser.add_argument("--disable-uvicorn-access-log", action="store_true")
    parser.add_argument("--disable-log-stats", action="store_true")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    ours = {"model", "served_model_name", "host", "port"}
    ours |= {"disable_uvicorn_access_log", "disable_log_stats"}
    adapter = load(given.model, {k: v for k, v in vars(given).items() if k not in ours})
    tokenizer = Tokenizer.from_file(str(Path(given.model) / "tokenizer.json"))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200 if self.path == "/health" else 404, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/embeddings"
            assert body["model"] == given.served_model_name
            assert body["encoding_format"] == "base64"
            items = [
                Item("", tokenizer.encode(i).ids if isinstance(i, str) else i)
                for i in body["input"]
            ]
            rows = adapter.embed(adapter.prepare(items)).astype(np.float32)
            data = [
                {
                    "index": i,
                    "object": "embedding",
                    "embedding": base64.b64encode(row.tobytes()).decode(),
                }
                for i, row in enumerate(rows)
            ]
            self._answer(200, {"object": "list", "data": data})

        def log_message(self, *args: Any) -> None:
            pass

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            # As vLLM writes it: without a space after the colon.
            data = json.dumps(content, separators=(",", ":")).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    ThreadingHTTPServer((given.host, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
