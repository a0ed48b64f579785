"""RoseEngine: one loaded model on one device, behind one call, `step`."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
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
from hotbed.rose.calibration import Calibration, calibration_file, load_calibration
from hotbed.rose.compute import open_mode, resolve_compute
from hotbed.rose.cpu import CpuRunner
from hotbed.rose.cuda import CudaRunner, CudaSettings
from hotbed.rose.device import resolve_device
from hotbed.rose.fp8_guard import check_fp8
from hotbed.rose.layers.fused import Mode, with_mode
from hotbed.rose.lazy_tensor import LazyTensor
from hotbed.rose.models.heads import head_tensors, load_head
from hotbed.rose.outputs import Outputs
from hotbed.rose.recipe import AnyRecipe, Recipe, ScoreRecipe
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

    def idle(self) -> bool:
        """See `hotbed.core.step.Engine.idle`."""
        ...

    def close(self) -> None:
        """Finish the steps that were taken."""
        ...


class RoseEngine:
    """Implements `hotbed.core.step.Engine`."""

    def __init__(
        self,
        runner: Runner,
        info: ModelInfo,
        *,
        isolates_nan: bool,
        attention: str,
        calibration: Calibration | None = None,
    ) -> None:
        self.runner = runner
        self.isolates_nan = isolates_nan
        self.attention = attention
        """Name of the attention backend."""
        self.calibration = calibration
        """What was measured of this model on this device, if it was."""
        self._info = info
        self._kinds = tuple(info.widths) or ("dense",)
        self._closed = threading.Event()

    @staticmethod
    def load(
        checkpoint: Checkpoint,
        *,
        device: str = "auto",
        dtype: str = "auto",
        invariant: bool = False,
        attention: AttentionSettings = AttentionSettings(),  # noqa: B008  # frozen
        num_threads: int | None = None,
        cuda: CudaSettings = CudaSettings(),  # noqa: B008  # frozen
        cache_folder: Path | None = None,
    ) -> RoseEngine:
        """Read the weights and build the model.

        Args:
            checkpoint: what `hotbed.checkpoint.load.load_checkpoint` read.
            device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:N``.
            dtype: type of the compute: ``auto`` (float32 on a CPU, bfloat16 on CUDA), ``float32``,
                ``bfloat16`` or, on a GPU, ``fp8``.
            invariant: whether a text's row must be the same bytes alone and in every batch.
            attention: which backend, or ``auto``.
            num_threads: CPU threads of one step; None takes torch's own default.
            cuda: settings of the graphs; without effect on a CPU.
            cache_folder: where a calibration of this model is looked for; None: nowhere.

        Raises:
            HotbedError: INVALID_INPUT naming the field or tensor that does not fit.
        """
        torch_device = resolve_device(device)
        compute = resolve_compute(dtype, torch_device, invariant=invariant)
        family = FAMILIES[checkpoint.family]
        specs = family.attention_specs(checkpoint.config)
        if not specs and attention.name != "auto":
            raise invalid(
                f"attention backend {attention.name!r} cannot run this model: it has a position"
                " bias, which no backend takes; supported: auto"
            )
        if not specs and compute.invariant and torch_device.type == "cuda":
            raise invalid(
                "invariant: on a GPU this model's attention has a position bias and adds up over "
                "all of a step; supported there: models without one"
            )
        backends = [
            select_backend(
                spec,
                torch_device,
                settings=attention,
                dtype=compute.dtype,
                invariant=compute.invariant,
            )
            for spec in specs
        ]

        head = checkpoint.head
        pair_offset = family.pair_offset(checkpoint.config)

        @torch.inference_mode()
        def build() -> Model:
            weights = load_weights(
                checkpoint,
                family.weight_map(checkpoint.config),
                dtype=compute.dtype,
                device=torch_device,
                used_elsewhere=() if head is None else head_tensors(head),
            )
            with with_mode(open_mode(compute, attention.kernel_dir, torch_device)):
                model = family.build(checkpoint.config, weights, backends)
            if compute.fp8:
                with with_mode(Mode(small_steps=False)):
                    wide = family.build(checkpoint.config, weights, backends)
                check_fp8(
                    model,
                    wide,
                    pooling=checkpoint.pooling.pooling,
                    vocab_size=checkpoint.config.vocab_size,
                    max_tokens=checkpoint.max_tokens,
                    device=torch_device,
                    pair_offset=pair_offset,
                )
            return model

        outputs = checkpoint.outputs
        if compute.invariant:
            outputs = tuple(output for output in outputs if output[0] == "dense")
            if head is None and not checkpoint.has_dense:
                raise invalid(
                    "invariant: this model has no dense output, and it is for those alone"
                )
        info = ModelInfo(
            name=checkpoint.name,
            task=checkpoint.task,
            architecture=checkpoint.architecture,
            dimensions=checkpoint.dimensions,
            max_tokens=checkpoint.max_tokens,
            vocab_size=checkpoint.config.vocab_size,
            pooling=checkpoint.pooling.pooling if checkpoint.has_dense else "none",
            normalize=checkpoint.pooling.normalize,
            dtype=compute.name,
            device=str(torch_device),
            fingerprint=fingerprint(checkpoint, compute.name),
            labels=() if head is None else head.labels,
            activation="none" if head is None else head.activation,
            token_types=1 if head is None else head.token_types,
            outputs=outputs,
        )
        calibration = None
        if cache_folder is not None:
            file = calibration_file(
                cache_folder,
                fingerprint=info.fingerprint,
                device=torch_device,
                num_threads=num_threads,
            )
            calibration = load_calibration(file)
        if calibration is not None and cuda.max_graph_tokens is None:
            cuda = dataclasses.replace(cuda, max_graph_tokens=calibration.max_graph_tokens)
        recipe = _recipe(checkpoint, torch_device, fixed=compute.invariant)
        build_outputs = None
        if head is None and not compute.invariant:

            @torch.inference_mode()
            def build_outputs() -> Outputs:
                return Outputs.load(checkpoint, device=torch_device, dtype=compute.dtype)

        runner: Runner
        if torch_device.type == "cuda":
            runner = CudaRunner(
                build(),
                recipe,
                device=torch_device,
                settings=cuda,
                by_length=any(backend.grid_follows_max_seqlen for backend in backends),
                by_shape=any(backend.tells_shapes_apart for backend in backends),
                max_tokens=info.max_tokens,
                pair_offset=pair_offset,
                outputs=None if build_outputs is None else build_outputs(),
                whole_step_attention=not backends,
            )
        else:
            runner = CpuRunner(
                build,
                recipe,
                max_tokens=info.max_tokens,
                num_threads=num_threads,
                pair_offset=pair_offset,
                build_outputs=build_outputs,
                one_by_one=compute.invariant,
            )
        return RoseEngine(
            runner,
            info,
            # A model without backends masks other sequences on a GPU: a weight of 0 times NaN.
            isolates_nan=all(backend.isolates_nan for backend in backends)
            and (bool(backends) or torch_device.type == "cpu"),
            attention=", ".join(dict.fromkeys(b.name for b in backends)) or "own",
            calibration=calibration,
        )

    @property
    def info(self) -> ModelInfo:
        """Facts of the loaded model."""
        return self._info

    @property
    def default_step_tokens(self) -> int:
        """Step size that suits model and device: the calibrated knee, or the device's default."""
        if self.calibration is not None:
            return self.calibration.step_tokens
        return self.runner.default_step_tokens

    def step(
        self, batch: RaggedBatch, segments: Sequence[OutputSegment] | None = None
    ) -> LazyTensor:
        """Enqueue one ragged batch; see `hotbed.core.step.Engine.step`.

        Without `segments` the model's first output comes as float32 in its own form.

        Raises:
            HotbedError: INVALID_INPUT for spans or an output that the model has not.
        """
        if self._closed.is_set():
            raise EngineDeadError("the engine is closed")
        if batch.spans is not None:
            self._info.check_spans()
        if segments is None:
            segments = (OutputSegment(0, batch.num_rows, OutputSpec(kind=self._info.first_output)),)
        for segment in segments:
            if segment.spec.kind not in self._kinds:
                self._info.check_output(segment.spec.kind)
        return LazyTensor(self.runner.submit(batch, segments))

    def warm_up(self) -> None:
        """Run steps of the usual sizes, so that no request pays for building kernels."""
        self.runner.warm_up()

    def idle(self) -> bool:
        """See `hotbed.core.step.Engine.idle`: captures graphs, where that is asked for."""
        return self.runner.idle()

    def counters(self) -> dict[str, int]:
        """What became of the steps, on a GPU: eager, captured, captured_idle, replayed, evicted."""
        if isinstance(self.runner, CudaRunner):
            return dataclasses.asdict(self.runner.counters)
        return {}

    def close(self) -> None:
        """Finish the steps that were taken; later ones raise EngineDeadError."""
        self._closed.set()
        self.runner.close()


def _recipe(checkpoint: Checkpoint, device: torch.device, *, fixed: bool) -> AnyRecipe:
    head = checkpoint.head
    if head is None:
        return Recipe.load(checkpoint, device, fixed=fixed)
    pooling = checkpoint.pooling.pooling
    loaded = load_head(checkpoint, head, device)
    return ScoreRecipe(pooling, loaded, head.activation, fixed=fixed)
