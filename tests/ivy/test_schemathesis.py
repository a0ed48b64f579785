"""Requests made up from our OpenAPI document: never a 5xx, never a hang, always a known form.

A bounded run; the environment below makes a deeper one of it (minutes).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from hotbed.tulip.testing import FakeEngine
from tests.ivy.harness import (
    info_for,
    model_for,
    real_tulip,
    score_info,
    score_model,
    serving,
    settings_for,
    unix_address,
)

COMMAND = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,response_headers_conformance"
)


# More, by hand: SCHEMATHESIS_EXAMPLES=200 SCHEMATHESIS_PHASES=coverage,fuzzing,stateful
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "20")
PHASES = os.environ.get("SCHEMATHESIS_PHASES", "fuzzing")
LIMIT_S = 90 if EXAMPLES == "20" else 3600


@pytest.mark.skipif(COMMAND is None, reason="needs schemathesis")
@pytest.mark.parametrize("task", ["embed", "score"])
@pytest.mark.timeout(LIMIT_S + 30)
async def test_made_up_requests_get_an_answer_as_documented(tokenizer, pairs, tmp_path, task):
    address = unix_address(tmp_path)
    info = info_for(tokenizer) if task == "embed" else score_info(pairs)
    model = model_for(tokenizer) if task == "embed" else score_model(pairs)
    # Of the other task's routes only how they refuse can be seen.
    only = [] if task == "embed" else ["--include-path-regex=rerank|score|classify|predict|info"]
    right = {"/v1/embeddings": {"input": "the cat"}}
    if task == "score":
        right = {"/v1/rerank": {"query": "the cat", "documents": ["a dog"]}}
    async with (
        real_tulip(FakeEngine(info), address),
        serving(settings_for(address), model) as ivy,
    ):
        process = await asyncio.create_subprocess_exec(
            COMMAND, "run", f"{ivy.url}/openapi.json",
            f"--max-examples={EXAMPLES}", "--seed=20261130",
            f"--checks={CHECKS}", f"--phases={PHASES}", "--request-timeout=10", *only,
            # Made-up times would be too short for any answer.
            "--header=x-request-timeout-ms: 10000",
            "--generation-database=none", "--no-color", "--suppress-health-check=all",
            "--exclude-path=/metrics",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path,
        )  # fmt: skip
        try:
            output, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
        except TimeoutError:
            process.kill()
            raise
        assert process.returncode == 0, output.decode()[-6000:]
        async with ivy.client() as client:
            for path, body in right.items():
                assert (await client.post(path, json=body)).status_code == 200
        assert ivy.gateway.door.num_in_flight == 0
        assert ivy.gateway.door.budget.held_bytes == 0
