"""Starts `hotbed serve` on the default model, asks it for a few embeddings, compares them.

Run by `make demo`; goes on serving until Ctrl-C, or stops after the answer with --once.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
from openai import OpenAI

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TEXTS = [
    "How do I keep seedlings warm in winter?",
    "A hotbed protects young plants from the cold.",
    "The night train to the coast was late.",
]
START_TIMEOUT_S = 120.0


class ServerEndedError(Exception):
    """The server is not there; the message says why."""


def main() -> int:
    """Run the demo; the server's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--once", action="store_true", help="stop after the answer")
    options = parser.parse_args()
    port = options.port or free_port()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A session of its own: Ctrl-C comes to us, and we pass it on once.
    server = subprocess.Popen(  # noqa: S603  # our own command
        [sys.executable, "-m", "hotbed.cli", "serve", MODEL, "--port", str(port)],
        start_new_session=True,
    )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/ready", server)
        ask(f"http://127.0.0.1:{port}/v1")
        if not options.once:
            print("\nServing until Ctrl-C.", flush=True)
            return server.wait()
    except KeyboardInterrupt:
        print("\nStopping.", flush=True)
    except ServerEndedError as error:
        print(error, file=sys.stderr)
    finally:
        server.send_signal(signal.SIGTERM)
        exit_code = server.wait()
    return exit_code


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Return once `url` answers 200."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise ServerEndedError("hotbed serve ended before it was ready")
        try:
            with urllib.request.urlopen(url):  # noqa: S310  # our own http URL
                return
        except urllib.error.URLError:  # not listening yet, or 503
            time.sleep(0.2)
    raise ServerEndedError(f"hotbed serve was not ready within {START_TIMEOUT_S:.0f} s")


def ask(base_url: str) -> None:
    """Embed the texts and print what came."""
    client = OpenAI(base_url=base_url, api_key="unused")
    answer = client.embeddings.create(model=MODEL, input=TEXTS)
    rows = np.array([item.embedding for item in answer.data])
    print(f"\n{len(rows)} embeddings of {rows.shape[1]} dimensions with the openai client:")
    for text, row in zip(TEXTS, rows, strict=True):
        numbers = " ".join(f"{x:+.4f}" for x in row[:6])
        print(f"  {numbers} ...  {text}")
    print("cosine with the first text:")
    for text, row in zip(TEXTS[1:], rows[1:], strict=True):
        print(f"  {row @ rows[0]:.3f}  {text}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
