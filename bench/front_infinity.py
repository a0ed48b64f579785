"""infinity's HTTP server over its own dummy model, for `bench.gateway_peers`.

Run with the Python of an environment that has infinity-emb[server] and tokenizers. The server, its
queue, batches and threads are infinity's; its dummy model is made to do what its real ones do
before and after the forward pass: tokenise (Hugging Face's tokenizers, as its torch engine does)
and give float32 rows.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from infinity_emb.cli import cli
from infinity_emb.transformer.embedder.dummytransformer import DummyTransformer
from tokenizers import Tokenizer


def main(tokenizer_json: str, port: str, dimensions: str) -> None:
    tokenizer = Tokenizer.from_file(tokenizer_json)
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    row = np.random.default_rng(0).random(int(dimensions), dtype=np.float32)

    def encode_pre(self: Any, sentences: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch(sentences)]

    def encode_core(self: Any, features: list[list[int]]) -> np.ndarray:
        return np.broadcast_to(row, (len(features), len(row)))

    DummyTransformer.encode_pre = encode_pre
    DummyTransformer.encode_core = encode_core
    sys.argv = [
        "infinity_emb", "v2", "--engine", "debugengine", "--model-id", "fake",
        "--served-model-name", "fake", "--host", "127.0.0.1", "--port", port, "--no-model-warmup",
        "--batch-size", "64", "--log-level", "error",
    ]  # fmt: skip
    cli()


if __name__ == "__main__":
    main(*sys.argv[1:4])
