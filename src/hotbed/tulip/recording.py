"""Writes down what came when, for `bench.scheduler --trace`: times and lengths, nothing of texts.

A line an item, as JSON: ``at_s`` since the recording began, ``client``, ``kind`` and ``lengths``.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAX_ITEMS = 1_000_000
"""Some 60 MB of lines; then the recording is complete."""
_KINDS = ((64, "query"), (2048, "document"))

log = logging.getLogger(__name__)


class Recording:
    """One file ``traffic-PID.jsonl`` in a folder, so that replicas can share it.

    Clients are named by a hash with a salt of this recording's own. A disk that gets full ends the
    recording and nothing else.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"traffic-{os.getpid()}.jsonl"
        self._file = self.path.open("w", encoding="utf-8")
        self._begin = time.monotonic()
        self._salt = secrets.token_bytes(8)
        self._num_items = 0

    def add(self, client: object, lengths: NDArray[np.int32]) -> None:
        """An item came, with sequences of these lengths; refused ones count too."""
        if self._file.closed:
            return
        tokens = int(lengths.sum())
        line = {
            "at_s": round(time.monotonic() - self._begin, 6),
            "client": f"{hash((self._salt, client)) & 0xFFFFFFFF:08x}",
            "kind": next((kind for most, kind in _KINDS if tokens <= most), "long"),
            "lengths": lengths.tolist(),
        }
        try:
            self._file.write(json.dumps(line) + "\n")
            self._num_items += 1
            if self._num_items == MAX_ITEMS:
                log.info("the recording %s is complete: %d items", self.path, MAX_ITEMS)
                self._file.close()
        except OSError as error:
            self._end(error)

    def close(self) -> None:
        """Bring what is buffered to the file."""
        try:
            self._file.close()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        log.warning("the recording %s ends here: %s", self.path, error)
        with suppress(OSError):  # it flushes once more
            self._file.close()
