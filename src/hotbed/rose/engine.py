"""RoseEngine: one loaded model on one device, behind one call, `step`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

import torch

from hotbed.checkpoint.fingerprint import fingerprint
from hotbed.checkpoint.records import Checkpoint
from hotbed.core.errors import invalid
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import EngineDeadError, StepResult
from hotbed.rose.attention.select import AttentionSettings, select_backend
from hotbed.rose.cpu import CpuRunner
from hotbed.rose.cuda import CudaRunner, CudaSettings
from hotbed.rose.device import dtype_name, resolve_device, resolve_dtype
from hotbed.rose.lazy_tensor import LazyTensor
from hotbed.rose.recipe import Recipe
from hotbed.rose.registry import FAMILIES, Model
from hotbed.rose.weights import load_weights


class Runner(Protocol):
    """How steps run on one kind of device."""

    default_step_tokens: int

    def submit(self, batch: RaggedBatch, segments: Sequence[OutputSegment]) -> Future[StepResult]:
        """Enqueue a step, in order, without waiting for it."""
        ...

    def warm_up(self) -> None:
        """Build what the usual sizes need."""
        ...

    def close(self) -> None:
        """Finish the steps that were taken."""
        ...


class RoseEngine:
    """Implements `hotbed.core.step.Engine`."""

    def __init__(self, runner: Runner, info: ModelInfo) -> None:
        self.runner = runner
        self._info = info
        self._closed = threading.Event()

    @staticmethod
    def load(
        checkpoint: Checkpoint,
        *,
        device: str = "auto",
        dtype: str = "auto",
        attention: AttentionSettings = AttentionSettings(),  # noqa: B008  # frozen
        num_threads: int | None = None,
        cuda: CudaSettings = CudaSettings(),  # noqa: B008  # frozen
    ) -> RoseEngine:
        """Read the weights and build the model.

        Args:
            checkpoint: what `hotbed.checkpoint.load.load_checkpoint` read.
            device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:N``.
            dtype: type of the compute: ``auto`` (float32 on a CPU, bfloat16 on CUDA), ``float32``
                or ``bfloat16``.
            attention: which backend, or ``auto``.
            num_threads: CPU threads of one step; None takes torch's own default.
            cuda: settings of the graphs; without effect on a CPU.

        Raises:
            HotbedError: INVALID_INPUT naming the field or tensor that does not fit.
        """
        torch_device = resolve_device(device)
        torch_dtype = resolve_dtype(dtype, torch_device)
        family = FAMILIES[checkpoint.family]
        specs = family.attention_specs(checkpoint.config)
        if not specs and attention.name != "auto":
            raise invalid(
                f"attention backend {attention.name!r} cannot run this model: it has a position"
                " bias, which no backend takes; supported: auto"
            )
        backends = [
            select_backend(spec, torch_device, settings=attention, dtype=torch_dtype)
            for spec in specs
        ]

        @torch.inference_mode()
        def build() -> Model:
            weights = load_weights(
                checkpoint,
                family.weight_map(checkpoint.config),
                dtype=torch_dtype,
                device=torch_device,
            )
            return family.build(checkpoint.config, weights, backends)

        info = ModelInfo(
            name=checkpoint.name,
            task="embed",
            architecture=checkpoint.architecture,
            dimensions=checkpoint.dimensions,
            max_tokens=checkpoint.max_tokens,
            vocab_size=checkpoint.config.vocab_size,
            pooling=checkpoint.pooling.pooling,
            normalize=checkpoint.pooling.normalize,
            dtype=dtype_name(torch_dtype),
            device=str(torch_device),
            fingerprint=fingerprint(checkpoint, dtype_name(torch_dtype)),
        )
        recipe = Recipe.load(checkpoint, torch_device)
        runner: Runner
        if torch_device.type == "cuda":
            runner = CudaRunner(
                build(),
                recipe,
                device=torch_device,
                settings=cuda,
                by_length=any(backend.grid_follows_max_seqlen for backend in backends),
            )
        else:
            runner = CpuRunner(build, recipe, max_tokens=info.max_tokens, num_threads=num_threads)
        return RoseEngine(runner, info)

    @property
    def info(self) -> ModelInfo:
        """Facts of the loaded model."""
        return self._info

    @property
    def default_step_tokens(self) -> int:
        """Step size that suits the device."""
        return self.runner.default_step_tokens

    def step(
        self, batch: RaggedBatch, segments: Sequence[OutputSegment] | None = None
    ) -> LazyTensor:
        """Enqueue one ragged batch; see `hotbed.core.step.Engine.step`.

        Without `segments` all rows come as float32 in the model's own form.
        """
        if self._closed.is_set():
            raise EngineDeadError("the engine is closed")
        if batch.spans is not None:
            self._info.check_spans()
        if segments is None:
            segments = (OutputSegment(0, batch.num_rows, OutputSpec()),)
        return LazyTensor(self.runner.submit(batch, segments))

    def warm_up(self) -> None:
        """Run steps of the usual sizes, so that no request pays for building kernels."""
        self.runner.warm_up()

    def close(self) -> None:
        """Finish the steps that were taken; later ones raise EngineDeadError."""
        self._closed.set()
        self.runner.close()
