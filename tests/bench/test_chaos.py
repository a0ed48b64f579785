"""The chaos run in CI's size, and that it would see what it looks for."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import chaos
from bench.chaos_service import DIMENSIONS
from hotbed.checkpoint.records import TokenizerFiles
from hotbed.text.tokenizer import Tokenizer
from hotbed.tulip.fake_rows import FAKE_INFO, expected_rows
from tests.support.tiny_tokenizers import wordpiece

MIB = 1 << 20


@pytest.mark.weights
@pytest.mark.slow
def test_nothing_is_lost_wrong_or_stuck_while_replicas_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    passed = chaos.main(["--seconds=20", "--clients=6", f"--log={log}", "--seed=3"])
    result = json.loads(capsys.readouterr().out.splitlines()[0])
    assert passed == 0, result
    assert result["n"] > 50
    assert result["restarts"] >= 1, "nothing went wrong: the run proves nothing"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    wordpiece().save(str(path))
    vocab_size = wordpiece().get_vocab_size()
    files = TokenizerFiles(tokenizer_json=path)
    return Tokenizer.load(files, max_tokens=64, vocab_size=vocab_size, fast="off")


class Gateway:
    """Answers a request at a time with what the test says."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self.answers = list(answers)

    async def post(self, _: str, json: dict[str, Any]) -> Any:
        import httpx

        status, body = self.answers.pop(0)
        return httpx.Response(status, json=body, headers={"retry-after": "0"})


def answer(tokenizer: Tokenizer, texts: list[str], *, flip: bool = False) -> dict[str, Any]:
    rows = expected_rows(tokenizer.encode(texts).batch, info=replace(FAKE_INFO, dimensions=32))
    assert DIMENSIONS == 32
    if flip:
        rows = rows[::-1]
    return {"data": [{"embedding": base64.b64encode(r.tobytes()).decode()} for r in rows]}


def asked(tokenizer: Tokenizer, texts: list[str], *answers: tuple[int, Any]) -> chaos.Seen:
    seen = chaos.Seen()
    clients = chaos.Clients("http://x", "m", tokenizer, seen, rate=1.0)
    asyncio.run(clients._ask(Gateway(*answers), texts))
    return seen


def test_right_rows_pass_and_rows_in_another_order_are_wrong(tokenizer: Tokenizer) -> None:
    texts = ["red", "old green"]
    good, bad = answer(tokenizer, texts), answer(tokenizer, texts, flip=True)
    assert asked(tokenizer, texts, (200, good)).problems == []
    assert asked(tokenizer, texts, (200, bad)).num_wrong == 1
    assert asked(tokenizer, texts, (200, {"data": good["data"][:1]})).num_wrong == 1


def test_a_refusal_is_tried_again_and_another_error_is_a_problem(tokenizer: Tokenizer) -> None:
    good = answer(tokenizer, ["red"])
    seen = asked(tokenizer, ["red"], (503, {}), (429, {}), (200, good))
    assert seen.statuses == {503: 1, 429: 1, 200: 1}
    assert seen.problems == []
    assert asked(tokenizer, ["red"], (500, {})).problems


def test_memory_that_grows_fails_the_run() -> None:
    seen = chaos.Seen()
    seen.statuses[200] = 1
    assert chaos.verdict(seen, [100 * MIB] * 20) == []
    assert chaos.verdict(seen, [*[100 * MIB] * 10, *[140 * MIB] * 10])
    assert chaos.verdict(chaos.Seen(), [100 * MIB] * 20) == ["nothing was answered"]
