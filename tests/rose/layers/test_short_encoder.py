"""The C kernel for short steps against the formula in fp64, and what happens when it fails."""

from __future__ import annotations

import gc
import itertools
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.batch import PackedBatch, pack
from hotbed.rose.engine import RoseEngine
from hotbed.rose.kernels.cpu import build
from hotbed.rose.layers import short_encoder as module
from hotbed.rose.layers.short_encoder import (
    ShortEncoder,
    ShortLayer,
    ShortSettings,
    short_encoder,
)
from tests.support.checkpoints import make_bert

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

EPS = 1e-12
# Two layers with states of up to 5: fp32 sums of 384 products are off by some 1e-6.
TOLERANCE = 5e-6

Make = Callable[..., tuple[ShortEncoder, "Reference"]]


class Reference:
    """The layers by their formula, in fp64."""

    def __init__(self, layers: list[ShortLayer], spec: AttentionSpec) -> None:
        self.layers, self.spec = layers, spec

    def __call__(self, x: torch.Tensor, batch: PackedBatch) -> torch.Tensor:
        x = x.double()
        for layer in self.layers:
            qkv, out, norm_1, up, down, norm_2 = (
                (w.double(), b.double())
                for w, b in zip(layer.tensors()[::2], layer.tensors()[1::2], strict=True)
            )
            d = x.shape[1]
            heads = F.linear(x, *qkv).view(len(x), 3, self.spec.num_heads, -1)
            attended = torch.zeros_like(x)
            offsets = batch.cu_seqlens.tolist()
            for start, stop in itertools.pairwise(offsets):
                q, k, v = heads[start:stop].permute(1, 2, 0, 3)
                weights = torch.softmax(q @ k.transpose(1, 2) * self.spec.scale, -1)
                attended[start:stop] = (weights @ v).transpose(0, 1).reshape(-1, d)
            x = F.layer_norm(x + F.linear(attended, *out), (d,), *norm_1, EPS)
            x = F.layer_norm(x + F.linear(F.gelu(F.linear(x, *up)), *down), (d,), *norm_2, EPS)
        return x


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def make(cache: Path) -> Iterator[Make]:
    threads = torch.get_num_threads()

    def of(
        num_threads: int = 2, d: int = 384, f: int = 1536, heads: int = 12
    ) -> tuple[ShortEncoder, Reference]:
        torch.set_num_threads(num_threads)
        layers, spec = random_layers(d, f), AttentionSpec(heads, heads, d // heads, causal=False)
        reference = Reference(layers, spec)
        short = short_encoder(
            layers, spec, eps=EPS, reference=reference, settings=ShortSettings(cache)
        )
        assert short is not None
        return short, reference

    yield of
    torch.set_num_threads(threads)


def random_layers(d: int, f: int, count: int = 2) -> list[ShortLayer]:
    generator = torch.Generator().manual_seed(1)

    def pair(n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight = torch.randn(n, k, generator=generator) / k**0.5
        return weight, torch.randn(n, generator=generator) / 10

    def norm() -> tuple[torch.Tensor, torch.Tensor]:
        return 1 + pair(d, 1)[1], pair(d, 1)[1]

    return [
        ShortLayer(pair(3 * d, d), pair(d, d), norm(), pair(f, d), pair(d, f), norm())
        for _ in range(count)
    ]


def batch_of(*lengths: int) -> PackedBatch:
    return pack(
        RaggedBatch.from_lengths(
            np.zeros(sum(lengths), dtype=np.int32), np.array(lengths, dtype=np.int32)
        )
    )


def states(rows: int, d: int = 384) -> torch.Tensor:
    return torch.randn(rows, d, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_every_length_equals_the_formula(num_threads: int, make: Make) -> None:
    short, reference = make(num_threads)
    for rows in range(1, short.max_rows + 1):
        batch, x = batch_of(rows), states(rows)
        assert (short(x, batch) - reference(x, batch)).abs().max() < TOLERANCE, rows


@pytest.mark.parametrize("lengths", [(1,) * 32, (31, 1), (16, 16), (12, 7, 7, 3, 1)])
def test_sequences_do_not_see_each_other(lengths: tuple[int, ...], make: Make) -> None:
    short, reference = make()
    batch, x = batch_of(*lengths), states(sum(lengths))
    assert (short(x, batch) - reference(x, batch)).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    ("d", "f", "heads"), [(64, 128, 2), (16, 16, 1), (48, 80, 6), (768, 3072, 12), (144, 400, 6)]
)
def test_other_widths_equal_the_formula(d: int, f: int, heads: int, make: Make) -> None:
    short, reference = make(2, d, f, heads)
    for lengths in ((1,), (15,), (20, 9, 3)):
        batch, x = batch_of(*lengths), states(sum(lengths), d)
        assert (short(x, batch) - reference(x, batch)).abs().max() < TOLERANCE


def test_large_activations_equal_the_formula(make: Make) -> None:
    """Far out on GELU's tails, and scores of which all but one underflow."""
    short, reference = make(2, 64, 128, 2)
    batch, x = batch_of(13), states(13, 64) * 300
    assert (short(x, batch) - reference(x, batch)).abs().max() < TOLERANCE


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_nan_stays_in_its_sequence(bad: float, make: Make) -> None:
    short, _ = make()
    batch, x = batch_of(12, 7, 5), states(24)
    clean = short(x, batch)
    x[14, 3] = bad
    dirty = short(x, batch)
    assert dirty[12:19].isnan().all()
    assert torch.equal(dirty[:12], clean[:12])
    assert torch.equal(dirty[19:], clean[19:])
    assert torch.equal(short(states(24), batch), clean), "the next call"


def test_repeated_calls_and_other_thread_counts_give_the_same_bits(make: Make) -> None:
    batch, x = batch_of(9, 4), states(13)
    first = make(1)[0](x, batch)
    for num_threads in (1, 2, 4):
        short, _ = make(num_threads)
        for i in range(200):
            if i % 7 == 0:
                short(states(i % 32 + 1), batch_of(i % 32 + 1))
            assert torch.equal(short(x, batch), first)


def test_a_row_does_not_depend_on_its_neighbours(make: Make) -> None:
    short, _ = make()
    x = states(32)
    together = short(x, batch_of(16, 12, 4))
    assert torch.equal(together[16:28], short(x[16:28], batch_of(12)))


def test_workers_end_with_the_encoder(make: Make) -> None:
    def running() -> int:
        return sum(map(is_worker, Path("/proc/self/task").iterdir()))

    def is_worker(task: Path) -> bool:
        try:
            return (task / "comm").read_text().strip() == "hotbed-short"
        except OSError:  # another's thread that has just ended
            return False

    gc.collect()  # what earlier tests left behind must not end in between
    others = running()
    short, _ = make(4)
    assert running() == others + 3
    del short, _
    gc.collect()
    assert running() == others


@pytest.mark.parametrize(
    ("d", "f", "heads", "change"),
    [
        (384, 1536, 12, {"causal": True}),
        (384, 1536, 12, {"window": 4}),
        (60, 128, 5, {}),  # head dim 12
        (64, 120, 2, {}),
        (1376, 64, 43, {}),  # 3 d above the kernel's limit
    ],
)
def test_what_the_kernel_does_not_know_is_left_to_torch(
    d: int, f: int, heads: int, change: dict[str, bool], cache: Path
) -> None:
    spec = AttentionSpec(heads, heads, d // heads, **{"causal": False, **change})
    layers = random_layers(d, f, 1)
    reference = Reference(layers, spec)
    assert (
        short_encoder(layers, spec, eps=EPS, reference=reference, settings=ShortSettings(cache))
        is None
    )


def test_bfloat16_and_models_over_the_limit_are_left_to_torch(cache: Path) -> None:
    spec = AttentionSpec(2, 2, 32, causal=False)
    layers = random_layers(64, 128, 1)
    halved = [ShortLayer(*((w.bfloat16(), b.bfloat16()) for w, b in _pairs(layers[0])))]
    small = ShortSettings(cache, max_bytes=1000)
    for some, settings in ((halved, ShortSettings(cache)), (layers, small)):
        reference = Reference(some, spec)
        assert short_encoder(some, spec, eps=EPS, reference=reference, settings=settings) is None


def _pairs(layer: ShortLayer) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    tensors = layer.tensors()
    return zip(tensors[::2], tensors[1::2], strict=True)


def _rows(engine: RoseEngine, lengths: tuple[int, ...] = (1, 5, 12, 14)) -> np.ndarray:
    random = np.random.default_rng(0)
    batches = [
        RaggedBatch.from_sequences([random.integers(0, engine.info.vocab_size, n)]) for n in lengths
    ]
    batches.append(RaggedBatch.from_sequences([b.token_ids for b in batches]))
    return np.concatenate([engine.step(b).wait().rows[0] for b in batches])


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a model; engines compile into this run's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return make_bert(tmp_path / "m")


def _load(folder: Path, num_threads: int = 2) -> RoseEngine:
    return RoseEngine.load(load_checkpoint(str(folder)), device="cpu", num_threads=num_threads)


def test_an_engine_takes_the_short_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    call = ShortEncoder.__call__

    def counted(self: ShortEncoder, x: torch.Tensor, batch: PackedBatch) -> torch.Tensor:
        calls.append(len(x))
        return call(self, x, batch)

    monkeypatch.setattr(ShortEncoder, "__call__", counted)
    engine = _load(folder)
    calls.clear()
    _rows(engine, (12, 20, 40))
    assert calls == [12, 20]
    engine.close()


@pytest.mark.parametrize("broken", ["no compiler", "wrong result", "nan"])
def test_without_a_right_kernel_the_rows_are_torchs(
    broken: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "hotbed.rose"):
        engine = _load(folder)
        expected = _rows(engine)
        engine.close()
        assert not caplog.records
        if broken == "no compiler":
            monkeypatch.setattr(build.shutil, "which", lambda name: None)
        else:
            call, off = ShortEncoder.__call__, {"wrong result": 1e-3, "nan": float("nan")}[broken]
            monkeypatch.setattr(ShortEncoder, "__call__", lambda *a: call(*a) + off)
        engine = _load(folder)
        np.testing.assert_allclose(_rows(engine), expected, atol=1e-6)
        engine.close()
    (record,) = caplog.records
    assert "short texts take the slower path" in record.message


def test_two_engines_at_once_do_not_disturb_each_other(folder: Path, tmp_path: Path) -> None:
    engines = [_load(folder), _load(make_bert(tmp_path / "other", seed=1, layers=3))]
    expected = [_rows(engine) for engine in engines]
    wrong: list[int] = []

    def run(i: int) -> None:
        for _ in range(30):
            if not np.array_equal(_rows(engines[i]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for engine in engines:
        engine.close()


def test_the_self_check_covers_the_longest_step() -> None:
    assert [module.MAX_ROWS] in module._CHECKED_LENGTHS
