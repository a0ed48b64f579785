"""Which attention backend a model runs on. Chosen once at load, never silently replaced."""

from __future__ import annotations

from hotbed.core.errors import invalid
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.attention.sdpa import SdpaBackend

BACKENDS: dict[str, type[AttentionBackend]] = {"sdpa": SdpaBackend}


def select_backend(
    spec: AttentionSpec, device_type: str, *, name: str = "auto"
) -> AttentionBackend:
    """The named backend, or the best one for the device with ``auto``.

    Raises:
        HotbedError: INVALID_INPUT if the name is unknown or the backend cannot compute `spec`.
    """
    if name != "auto" and name not in BACKENDS:
        raise invalid(
            f"attention backend {name!r} is unknown; there are: auto, {', '.join(BACKENDS)}"
        )
    backend = BACKENDS["sdpa" if name == "auto" else name]()
    if (reason := backend.supports(spec, device_type)) is not None:
        raise invalid(f"attention backend {backend.name!r} cannot run this model: {reason}")
    return backend
