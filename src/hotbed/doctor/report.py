"""The report's records. Their fields are the JSON's keys; None where a thing is not there."""

from __future__ import annotations

import msgspec

from hotbed.rose.calibration import Calibration


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device this torch can use.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        name: the product's.
        memory_bytes: of its own.
        detail: cores and threads, or compute capability and multiprocessors.
    """

    device: str
    name: str
    memory_bytes: int
    detail: str


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What was run, against which reference, and how far off it was.

    Attributes:
        what: e.g. ``attention varlen``.
        device: it ran on.
        works: whether every run stayed within `limit`.
        error: the largest one, relative to the reference's largest element; None if nothing ran.
        limit: that is allowed.
        detail: what was run, or why it does not work.
    """

    what: str
    device: str
    works: bool
    error: float | None = None
    limit: float | None = None
    detail: str = ""


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """What a device can do at most, measured now.

    Attributes:
        device: which.
        read_bytes_per_s: reading a large array.
        copy_bytes_per_s: copying one, bytes read and bytes written together.
        matmul_flops: FLOP/s of a large matrix product.
        matmul_dtype: its type.
    """

    device: str
    read_bytes_per_s: float
    copy_bytes_per_s: float
    matmul_flops: float
    matmul_dtype: str


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that would make this machine do more.

    Attributes:
        what: the thing.
        effect: what goes without it.
        command: that brings it.
        is_needed: whether nothing can be served without it.
    """

    what: str
    effect: str
    command: str
    is_needed: bool = False


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model that was named, and how it ran.

    Attributes:
        name: as given.
        family: in the registry.
        fingerprint: of what was loaded.
        device: it ran on.
        dtype: of the compute.
        attention: backend.
        step_ms: one text of 16 tokens, after warming up, until its row is on the host.
        step_tokens: budget that a replica takes.
        calibration: stored for this model and device.
    """

    name: str
    family: str
    fingerprint: str
    device: str
    dtype: str
    attention: str
    step_ms: float
    step_tokens: int
    calibration: Calibration | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything; `can_serve` decides the exit code."""

    can_serve: bool
    versions: dict[str, str | None]
    driver: str | None
    devices: list[Device]
    proofs: list[Proof]
    ceilings: list[Ceilings]
    model: ServedModel | None
    model_error: str | None
    missing: list[Missing]
