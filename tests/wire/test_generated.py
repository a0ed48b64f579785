"""Symptom guarded: the proto was edited and the generated code was not (or by hand)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import hotbed.wire

WIRE = Path(hotbed.wire.__file__).parent
SOURCE_ROOT = WIRE.parent.parent


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed"
)
def test_generated_code_is_what_the_proto_gives(tmp_path: Path) -> None:
    outputs = [f"--{kind}={tmp_path}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", *outputs, "hotbed/wire/tulip.proto"],
        cwd=SOURCE_ROOT,
        check=True,
    )
    for name in ("tulip_pb2.py", "tulip_pb2.pyi", "tulip_pb2_grpc.py"):
        fresh = (tmp_path / "hotbed" / "wire" / name).read_text()
        assert (WIRE / name).read_text() == fresh, f"{name} is stale: regenerate it from the proto"
