from __future__ import annotations

import os
import subprocess
import sys

from hotbed.text.environment import TOKENIZER_ENVIRONMENT

_SCRIPT = """
import os
from tokenizers import Tokenizer, models, pre_tokenizers
tokenizer = Tokenizer(models.WordLevel({"dog": 0, "?": 1}, unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
before = len(os.listdir("/proc/self/task"))
tokenizer.encode_batch_fast(["dog cat"] * 1000)
print(len(os.listdir("/proc/self/task")) - before)
"""


def test_variables_keep_the_library_from_starting_threads() -> None:
    def threads_started(environment: dict[str, str]) -> int:
        result = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(result.stdout)

    plain = {k: v for k, v in os.environ.items() if k not in TOKENIZER_ENVIRONMENT}
    assert threads_started(plain) > 0
    assert threads_started(plain | dict(TOKENIZER_ENVIRONMENT)) == 0
