"""The report for people."""

from __future__ import annotations

from collections.abc import Iterator

from hotbed.doctor.report import Missing, Proof, Report, ServedModel


def as_text(report: Report) -> str:
    """Lines of text, the verdict last."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield "Devices"
    for device in report.devices:
        memory = f"{device.memory_bytes / 2**30:.0f} GiB"
        yield f"  {device.device}: {device.name}, {memory}, {device.detail}"
    yield f"  NVIDIA driver: {report.driver or 'none'}"
    yield "Versions"
    names = [f"{name} {version or '-'}" for name, version in report.versions.items()]
    yield f"  {', '.join(names)}"
    yield "Works here, run against plain references"
    for proof in report.proofs:
        yield f"  {_proof(proof)}"
    yield "Ceilings, measured now"
    for c in report.ceilings:
        yield (
            f"  {c.device}: read {c.read_bytes_per_s / 1e9:,.1f} GB/s, "
            f"copy {c.copy_bytes_per_s / 1e9:,.1f} GB/s, "
            f"{c.matmul_dtype} matmul {c.matmul_flops / 1e12:,.2f} TFLOP/s"
        )
    if report.model is not None:
        yield "Model"
        yield from _model(report.model)
    if report.missing:
        yield "Missing"
        for missing in report.missing:
            yield from _missing(missing)
    if report.model_error is not None:
        yield f"The model cannot be served here: {report.model_error}"
    elif not report.can_serve:
        yield "Not every family of models can be served here."
    else:
        yield "Models can be served here."


def _proof(proof: Proof) -> str:
    verdict = "works" if proof.works else "wrong" if proof.error is not None else "not here"
    error = "" if proof.error is None else f", error {proof.error:.1e} (limit {proof.limit:.0e})"
    return f"{proof.what} on {proof.device}: {verdict}{error}: {proof.detail}"


def _model(model: ServedModel) -> Iterator[str]:
    yield f"  {model.name}: {model.dtype} on {model.device}, attention {model.attention}"
    yield f"  fingerprint {model.fingerprint}, a short text {model.step_ms:.2f} ms"
    measured = model.calibration
    if measured is None:
        yield (
            f"  steps of {model.step_tokens} tokens, the device's default; not calibrated: "
            f"hotbed doctor --calibrate {model.name}"
        )
        return
    yield f"  steps of {model.step_tokens} tokens, the knee measured on {measured.date}"
    if measured.max_graph_tokens is not None:
        yield f"  CUDA graphs up to {measured.max_graph_tokens} tokens a step"
    for t in measured.times:
        graph = "" if t.replayed_ms is None else f", as a graph {t.replayed_ms:.2f} ms"
        rate = t.num_tokens / t.best_ms * 1e3
        yield f"    {t.num_tokens:>6} tokens: {t.eager_ms:.2f} ms{graph}, {rate:,.0f} tokens/s"


def _missing(missing: Missing) -> Iterator[str]:
    needed = " (needed)" if missing.is_needed else ""
    yield f"  {missing.what}{needed}: {missing.effect}"
    yield f"    {missing.command}"
