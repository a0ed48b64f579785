"""Requests made up from our OpenAPI document: never a 5xx, never a hang, always a known form.

A bounded run. `--phases=coverage,fuzzing` and more examples go deeper (a minute and more).
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from hotbed.tulip.testing import FakeEngine
from tests.ivy.harness import info_for, model_for, real_tulip, serving, settings_for, unix_address

COMMAND = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,response_headers_conformance"
)


@pytest.mark.skipif(COMMAND is None, reason="needs schemathesis")
async def test_made_up_requests_get_an_answer_as_documented(tokenizer, tmp_path):
    address = unix_address(tmp_path)
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), address),
        serving(settings_for(address), model_for(tokenizer)) as ivy,
    ):
        process = await asyncio.create_subprocess_exec(
            COMMAND, "run", f"{ivy.url}/openapi.json", "--max-examples=20", "--seed=20261130",
            f"--checks={CHECKS}", "--phases=fuzzing", "--request-timeout=10",
            # Made-up times would be too short for any answer.
            "--header=x-request-timeout-ms: 10000",
            "--generation-database=none", "--no-color", "--suppress-health-check=all",
            "--exclude-path=/metrics",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path,
        )  # fmt: skip
        try:
            output, _ = await asyncio.wait_for(process.communicate(), 90)
        except TimeoutError:
            process.kill()
            raise
        assert process.returncode == 0, output.decode()[-6000:]
        async with ivy.client() as client:
            answer = await client.post("/v1/embeddings", json={"input": "the cat"})
            assert answer.status_code == 200
        assert ivy.gateway.door.num_in_flight == 0
        assert ivy.gateway.door.budget.held_bytes == 0
