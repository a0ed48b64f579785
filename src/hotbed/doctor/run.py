"""`hotbed doctor`: gathers the report, prints it, and says by its exit code whether a model can be
served on this machine.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import torch

from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import Checkpoint
from hotbed.core.cache_folder import default_cache_folder
from hotbed.core.errors import HotbedError
from hotbed.core.exit_codes import EXIT_FAILURE
from hotbed.core.ragged import RaggedBatch
from hotbed.doctor import machine
from hotbed.doctor.ceilings import measure_ceilings
from hotbed.doctor.proofs import attention_proofs, model_proofs
from hotbed.doctor.report import Report, ServedModel
from hotbed.doctor.text import as_text
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.calibrate import SIZES, calibrate
from hotbed.rose.calibration import StepTime, calibration_file, save_calibration
from hotbed.rose.cuda import CudaSettings
from hotbed.rose.device import resolve_device
from hotbed.rose.engine import RoseEngine
from hotbed.text.multi_vector import check_marks
from hotbed.text.pairs import PairTokenizer
from hotbed.text.tokenizer import Tokenizer

_TEXT_TOKENS = 16


def run(
    model: str | None,
    *,
    calibrating: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    invariant: bool = False,
    attention: str = "auto",
    kernel_dir: Path | None = None,
    num_threads: int | None = None,
    offline: bool | None = None,
    as_json: bool = False,
) -> int:
    """Print the report.

    Returns:
        0 if models of every family, or the named one, can be served here; else 1.

    Raises:
        HotbedError: INVALID_INPUT for a device that is not there.
    """
    chosen = resolve_device(device)
    settings = AttentionSettings(attention, kernel_dir)
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    served, error = None, None
    if model is not None:
        try:
            served = _served(
                model,
                calibrating=calibrating,
                device=str(chosen),
                dtype=dtype,
                invariant=invariant,
                settings=settings,
                num_threads=num_threads,
                offline=offline,
            )
        except HotbedError as failure:
            error = failure.message
        except (RuntimeError, OSError) as failure:  # of the device, or of the cache folder
            error = f"{type(failure).__name__}: {failure}"
    families = model_proofs(chosen, settings)
    report = Report(
        can_serve=error is None
        and all(p.works for p in families if served is None or p.what == f"model {served.family}"),
        versions=machine.versions(),
        driver=machine.driver(),
        devices=machine.devices(),
        proofs=attention_proofs(chosen, settings) + families,
        ceilings=[measure_ceilings(chosen)],
        model=served,
        model_error=error,
        missing=machine.missing(chosen, settings),
    )
    if as_json:
        # An error that is NaN becomes null: JSON has none.
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        sys.stdout.write(as_text(report))
    return 0 if report.can_serve else EXIT_FAILURE


def _served(
    model: str,
    *,
    calibrating: bool,
    device: str,
    dtype: str,
    invariant: bool,
    settings: AttentionSettings,
    num_threads: int | None,
    offline: bool | None,
) -> ServedModel:
    """Load the model, run it, calibrate it where that is asked for."""
    folder = default_cache_folder()
    checkpoint = load_checkpoint(model, offline=offline)
    _check_tokenizer(checkpoint)
    engine = RoseEngine.load(
        checkpoint,
        device=device,
        dtype=dtype,
        invariant=invariant,
        attention=settings,
        num_threads=num_threads,
        # Of a calibration that is to be made the crossover must not come from an older one.
        cuda=CudaSettings(max_graph_tokens=max(SIZES) if calibrating else None),
        cache_folder=folder,
    )
    try:
        info = engine.info
        step_ms = _step_ms(engine)
        measured = engine.calibration
        step_tokens = engine.default_step_tokens
        if calibrating:
            measured = calibrate(engine, sizes=SIZES, on_size=_progress)
            step_tokens = measured.step_tokens
            file = calibration_file(
                folder,
                fingerprint=info.fingerprint,
                device=torch.device(info.device),
                num_threads=num_threads,
            )
            save_calibration(file, measured)
    finally:
        engine.close()
    return ServedModel(
        name=model,
        family=checkpoint.family,
        fingerprint=info.fingerprint,
        device=info.device,
        dtype=info.dtype,
        attention=engine.attention,
        step_ms=step_ms,
        step_tokens=step_tokens,
        calibration=measured,
    )


def _check_tokenizer(checkpoint: Checkpoint) -> None:
    """Make what the gateway makes of the tokenizer: it refuses what the model cannot take."""
    tokenizer = Tokenizer.load(
        checkpoint.tokenizer,
        max_tokens=checkpoint.max_tokens,
        vocab_size=checkpoint.config.vocab_size,
        fast="off",
    )
    if checkpoint.head is not None:
        PairTokenizer(tokenizer, checkpoint.head)
    if checkpoint.multi_vector is not None:
        check_marks(tokenizer, checkpoint.multi_vector)


def _step_ms(engine: RoseEngine) -> float:
    """The fastest of some steps of one short text, whose row must be finite."""
    num_tokens = min(_TEXT_TOKENS, engine.info.max_tokens)
    batch = RaggedBatch.from_sequences([np.arange(num_tokens, dtype=np.int32)])
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        result = engine.step(batch).wait()
        best = min(best, time.perf_counter() - start)
        if not result.finite.all():
            raise RuntimeError("the model gave a row that is not finite")
    return best * 1e3


def _progress(measured: StepTime) -> None:
    replayed = "" if measured.replayed_ms is None else f", as a graph {measured.replayed_ms:.2f} ms"
    sys.stderr.write(
        f"calibrating: {measured.num_tokens} tokens in {measured.eager_ms:.2f} ms{replayed}\n"
    )
