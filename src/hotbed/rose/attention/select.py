"""Which attention backend a model runs on. Chosen once at load, never silently replaced."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from hotbed.core.errors import invalid
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec, Capability
from hotbed.rose.attention.by_shape import ByShapeBackend
from hotbed.rose.attention.fa4 import ONE_TILE, Fa4Backend
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.attention.varlen import VarlenBackend

_log = logging.getLogger("hotbed.rose")


@dataclass(frozen=True, slots=True)
class AttentionSettings:
    """What a person may choose.

    Attributes:
        name: a backend, or ``auto``.
        kernel_dir: folder of kernels built ahead of time, FlashAttention 4's among them; None means
            that there are none.
    """

    name: str = "auto"
    kernel_dir: Path | None = None


BACKENDS: dict[str, Callable[[AttentionSettings], AttentionBackend]] = {
    "sdpa": lambda settings: SdpaBackend(),
    "varlen": lambda settings: VarlenBackend(),
    "fa4": lambda settings: Fa4Backend(settings.kernel_dir),
}

# What `auto` tries, best first (H200, 2026-11-30: FlashAttention 4 leads varlen by 5 % at 32 x 32
# and by 90 % at 1 x 8192); on a GPU other backends take the steps of some shapes (`by_shape`).
_AUTO = {"cpu": ("sdpa",), "cuda": ("fa4", "varlen")}


def select_backend(
    spec: AttentionSpec,
    device: torch.device | str,
    *,
    settings: AttentionSettings = AttentionSettings(),
    dtype: torch.dtype | None = None,
    invariant: bool = False,
) -> AttentionBackend:
    """The named backend, or with ``auto`` the best one for the device; ready to run `spec`.

    Args:
        spec: what the model asks for.
        device: where it runs.
        settings: the choice.
        dtype: of q, k and v; None is the device's own: float32 on a CPU, bfloat16 on CUDA.
        invariant: a sequence's result may not depend on the others of a step, so one backend takes
            steps of all shapes in one tiling.

    Raises:
        HotbedError: INVALID_INPUT if the name is unknown or the backend cannot compute `spec`.
    """
    device = torch.device(device)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    if settings.name == "auto":
        backend = _best(spec, device, dtype, settings, invariant=invariant)
    elif settings.name in BACKENDS:
        backend = _made(settings.name, settings, invariant=invariant)
        if (reason := backend.supports(spec, device, dtype)) is not None:
            raise invalid(f"attention backend {backend.name!r} cannot run this model: {reason}")
    else:
        names = ", ".join(BACKENDS)
        raise invalid(f"attention backend {settings.name!r} is unknown; there are: auto, {names}")
    backend.prepare(spec, device)
    return backend


def describe(settings: AttentionSettings = AttentionSettings()) -> tuple[Capability, ...]:
    """What each backend supports, and what this machine lacks for it."""
    return tuple(make(settings).describe() for make in BACKENDS.values())


def _made(name: str, settings: AttentionSettings, *, invariant: bool) -> AttentionBackend:
    if name == "fa4" and invariant:
        return Fa4Backend(settings.kernel_dir, tiles=ONE_TILE)
    return BACKENDS[name](settings)


def _best(
    spec: AttentionSpec,
    device: torch.device,
    dtype: torch.dtype,
    settings: AttentionSettings,
    *,
    invariant: bool,
) -> AttentionBackend:
    refused: list[str] = []
    for name in _AUTO.get(device.type, ()):
        backend = _made(name, settings, invariant=invariant)
        reason = backend.supports(spec, device, dtype)
        if reason is None:
            if device.type == "cuda" and not invariant:
                backend = ByShapeBackend(backend)
            _log.info("attention on %s: %s", device, "; ".join([backend.name, *refused]))
            return backend
        refused.append(f"{name}: {reason}")
    reasons = "; ".join(refused) or f"there is none for {device.type}"
    raise invalid(f"no attention backend can run this model: {reasons}")
