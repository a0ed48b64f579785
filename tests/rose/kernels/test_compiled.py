"""What the compiler makes of each kernel for sm_90; needs no card.

The rule of programmatic dependent launch is read off the machine's own instructions: nothing is
written, and nothing but weights is read, before griddepcontrol.wait. And no kernel spills registers
at the models' sizes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

# Kernel name: loads that may come before the wait, which are weights; None: in some of its forms.
WEIGHT_LOADS: dict[str, bool | None] = {
    "_rms_norm_kernel": True,
    "_layer_norm_kernel": True,
    "_embed_norm_kernel": True,
    "_swiglu_kernel": False,
    "_bias_gelu_kernel": True,
    "_fixed_gemm_kernel": False,
    "_unit_rows_kernel": False,
    "_fp8_rows_kernel_fp8": None,
    "_rms_norm_kernel_fp8": True,
    "_layer_norm_kernel_fp8": True,
    "_qk_norm_rope_kernel": True,
    "_short_attention_kernel": True,
    "_partial_sums_kernel": False,
    "_finish_kernel": False,
}


# Kernels that write fp32, or what the tensor cores hold.
OTHER_STORES = ("_partial_sums_kernel", "_finish_kernel", "_fixed_gemm_kernel", "_unit_rows_kernel")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """One entry a kernel and size: name, instructions in order, bytes of spilled registers."""
    # A process of its own: in this one Triton may be the interpreter.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compile_all.py"))],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_every_kernel_is_compiled(reports: list[dict[str, object]]) -> None:
    assert {report["name"] for report in reports} == set(WEIGHT_LOADS)


def test_nothing_is_written_and_no_input_is_read_before_the_wait(
    reports: list[dict[str, object]],
) -> None:
    for report in reports:
        instructions = report["instructions"]
        wait = instructions.index("griddepcontrol.wait")
        assert instructions[wait + 1] == "griddepcontrol.launch_dependents", report
        before = instructions[:wait]
        assert all(i.startswith("ld.global") for i in before), report
        assert WEIGHT_LOADS[report["name"]] in (bool(before), None), report
        # Inputs: at least one load behind the wait, and every store.
        behind = [i.split(".")[0] for i in instructions[wait:]]
        assert "ld" in behind, report
        assert "st" in behind, report


def test_no_registers_are_spilled(reports: list[dict[str, object]]) -> None:
    assert [r for r in reports if r["spilled_bytes"]] == []


def test_bf16_rows_are_moved_in_sixteen_bytes(reports: list[dict[str, object]]) -> None:
    for report in reports:
        if report["name"] not in OTHER_STORES:
            stores = {i for i in report["instructions"] if i.startswith("st.global")}
            if report["name"].endswith("_fp8"):  # eight values a thread, and the scales
                stores -= {"st.global.b32"}
                assert "st.global.v2.b32" in stores or "st.global.v4.b32" in stores, report
                stores -= {"st.global.v2.b32"}
                assert stores <= {"st.global.v4.b32"}, report
            else:
                assert stores == {"st.global.v4.b32"}, report
