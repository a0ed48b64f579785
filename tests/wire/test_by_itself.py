"""Symptom guarded: a client library that drags the whole stack in, or whose page is out of date."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.tulip.fake_rows import expected_rows
from tests.ivy.harness import FakeEngine, real_tulip, unix_address

DOCS = Path(__file__).parents[2] / "docs"

# Everything outside the standard library but these is not to be found.
ALONE = """
import importlib.abc, sys
ALLOWED = ("hotbed", "numpy", "grpc", "google", "typing_extensions")  # the last is grpcio's own
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ALLOWED:
            return None
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""


async def test_the_documented_program_runs_on_numpy_protobuf_and_grpc_alone(tmp_path: Path) -> None:
    page = (DOCS / "wire.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    address = unix_address(tmp_path)
    async with real_tulip(FakeEngine(), address):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ALONE + program, address,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, error.decode()
    spec = OutputSpec(8, OutputDtype.INT8)
    many = [expected_rows([ids], spec).tolist() for ids in ([101, 7592, 102], [101, 2088, 102])]
    assert out.decode().splitlines() == [
        "fake 32 131072",
        "(2, 32) float32 fake0000",
        str(many),
        "True input[0]",
    ]
