"""RoseEngine: one loaded model on one device, behind one call, `step`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from hotbed.checkpoint.fingerprint import fingerprint
from hotbed.checkpoint.records import Checkpoint
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import EngineDeadError, StepResult
from hotbed.rose.attention.select import select_backend
from hotbed.rose.batch import PackedBatch, pack
from hotbed.rose.device import dtype_name, resolve_device, resolve_dtype
from hotbed.rose.layers.pool import pool
from hotbed.rose.layers.quantize import finish
from hotbed.rose.lazy_tensor import LazyTensor
from hotbed.rose.registry import FAMILIES, Model
from hotbed.rose.weights import load_weights

# Token counts whose kernels are built at start, so that the first real texts do not wait for them.
_WARM_UP_TOKENS = (*range(8, 129, 8), *range(160, 513, 32))


class RoseEngine:
    """Implements `hotbed.core.step.Engine`.

    On the CPU one compute thread stands for the device's stream: `step` prepares the batch on the
    caller's thread, hands it over and returns; steps run in order.
    """

    # Step size for whoever batches: on a CPU more tokens a step gain nothing (MiniLM, 2 threads,
    # 2026-11-30) and cost latency.
    default_step_tokens = 2048

    def __init__(
        self, model: Model, checkpoint: Checkpoint, info: ModelInfo, *, num_threads: int
    ) -> None:
        self._model = model
        self._checkpoint = checkpoint
        self._info = info
        self._closed = threading.Event()
        # Thread counts are per thread in torch's OpenMP pools: set where the work runs.
        self._compute = ThreadPoolExecutor(
            1,
            thread_name_prefix="rose-compute",
            initializer=torch.set_num_threads,
            initargs=(num_threads,),
        )

    @staticmethod
    def load(
        checkpoint: Checkpoint,
        *,
        device: str = "cpu",
        dtype: str = "auto",
        attention: str = "auto",
        num_threads: int | None = None,
    ) -> RoseEngine:
        """Read the weights and build the model.

        Args:
            checkpoint: what `hotbed.checkpoint.load.load_checkpoint` read.
            device: ``cpu``.
            dtype: ``auto``, ``float32`` or ``bfloat16``: the type of the compute.
            attention: backend name, or ``auto``.
            num_threads: CPU threads of one step; None takes torch's own default.

        Raises:
            HotbedError: INVALID_INPUT naming the field or tensor that does not fit.
        """
        torch_device = resolve_device(device)
        torch_dtype = resolve_dtype(dtype, torch_device)
        family = FAMILIES[checkpoint.family]
        spec = family.attention_spec(checkpoint.config)
        backend = select_backend(spec, torch_device.type, name=attention)
        # torch.inference_mode is a property of the thread: tensors made here serve there too.
        with torch.inference_mode():
            weights = load_weights(
                checkpoint,
                family.weight_map(checkpoint.config),
                dtype=torch_dtype,
                device=torch_device,
            )
            model = family.build(checkpoint.config, weights, backend)
        info = ModelInfo(
            name=checkpoint.name,
            task="embed",
            architecture=checkpoint.architecture,
            dimensions=checkpoint.config.hidden_size,
            max_tokens=checkpoint.max_tokens,
            vocab_size=checkpoint.config.vocab_size,
            pooling=checkpoint.pooling.pooling,
            normalize=checkpoint.pooling.normalize,
            dtype=dtype_name(torch_dtype),
            device=str(torch_device),
            fingerprint=fingerprint(checkpoint, dtype_name(torch_dtype)),
        )
        return RoseEngine(
            model, checkpoint, info, num_threads=num_threads or torch.get_num_threads()
        )

    @property
    def info(self) -> ModelInfo:
        """Facts of the loaded model."""
        return self._info

    def step(
        self, batch: RaggedBatch, segments: Sequence[OutputSegment] | None = None
    ) -> LazyTensor:
        """Enqueue one ragged batch; see `hotbed.core.step.Engine.step`.

        Without `segments` all rows come as float32 in the model's own form.
        """
        if self._closed.is_set():
            raise EngineDeadError("the engine is closed")
        if segments is None:
            segments = (OutputSegment(0, batch.num_sequences, OutputSpec()),)
        return LazyTensor(self._compute.submit(self._run, pack(batch), tuple(segments)))

    def warm_up(self) -> None:
        """Run one step of each usual size, so that no request pays for building kernels."""
        longest = self._info.max_tokens
        for num_tokens in _WARM_UP_TOKENS:
            whole, rest = divmod(num_tokens, longest)
            lengths = np.array([longest] * whole + [rest] * (rest > 0), dtype=np.int32)
            ids = np.zeros(num_tokens, dtype=np.int32)
            self.step(RaggedBatch.from_lengths(ids, lengths)).wait()

    def close(self) -> None:
        """Finish the steps that were taken, stop the compute thread."""
        self._closed.set()
        self._compute.shutdown(wait=True)

    def _run(self, batch: PackedBatch, segments: tuple[OutputSegment, ...]) -> StepResult:
        with torch.inference_mode():
            states = self._model.forward(batch)
            rows = pool(states, batch.groups, self._checkpoint.pooling.pooling)
            if len(batch.restore) > 1:
                rows = rows[torch.from_numpy(batch.restore)]
            finite = torch.isfinite(rows).all(dim=-1).numpy()
            finished = [
                finish(
                    rows[segment.start : segment.stop],
                    segment.spec,
                    normalize=self._info.normalize,
                    quantizer=self._checkpoint.quantizer,
                )
                for segment in segments
            ]
        return StepResult(finished, finite)
