"""The models of one gateway: each with its tokenizer and its replicas, found by name."""

from __future__ import annotations

from collections.abc import Sequence

from hotbed.checkpoint.records import Quantizer
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.model_info import Task
from hotbed.ivy.body import MAX_ECHOED_NAME
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.outputs import OutputsPipeline
from hotbed.ivy.pool import ReplicaPool
from hotbed.ivy.score import ScorePipeline
from hotbed.ivy.served_model import ServedModel
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.tokenize import TokenizeStage
from hotbed.ivy.tokenize_pairs import PairTokenizeStage


class ModelService:
    """One model at work, from `start` to `close`."""

    def __init__(self, model: ServedModel, settings: IvySettings, metrics: Metrics) -> None:
        counted = metrics.for_model(model.names[0])
        self.model = model
        self.pool = ReplicaPool(
            settings, model.expected, counted, addresses=model.replicas or settings.replicas
        )
        self.tokenize = TokenizeStage(model.tokenizer, num_threads=settings.tokenizer_threads)
        self.pipeline = OutputsPipeline(
            tokenize=self.tokenize,
            tokenizer_fingerprint=model.tokenizer.fingerprint,
            prompts=model.prompts,
            pool=self.pool,
            settings=settings,
            metrics=counted,
        )
        self.pipeline.multi_vector = model.multi_vector
        self.scores = ScorePipeline(
            tokenize=None
            if model.pairs is None
            else PairTokenizeStage(
                model.pairs, self.tokenize, max_request_tokens=settings.max_request_tokens
            ),
            pool=self.pool,
            settings=settings,
            metrics=counted,
        )
        self._min_ready_replicas = model.min_ready_replicas or settings.min_ready_replicas

    @property
    def name(self) -> str:
        """The name in the answers."""
        return self.model.names[0]

    @property
    def quantizer(self) -> Quantizer:
        """The model's own recipe for int8 rows."""
        return self.model.quantizer

    @property
    def num_ready_replicas(self) -> int:
        """Healthy replicas that /ready asks for."""
        return self._min_ready_replicas or len(self.pool.replicas)

    @property
    def is_ready(self) -> bool:
        num_up = self.pool.num_up
        return num_up > 0 and num_up >= self.num_ready_replicas

    async def wait_until_ready(self) -> None:
        """Return once enough replicas are in use."""
        await self.pool.wait_until(lambda: self.is_ready)

    async def close(self) -> None:
        await self.pool.close()
        self.tokenize.close()


class Registry:
    """All models; where a request names none, the first that can do what is asked is meant.

    Raises:
        ValueError: two models share a name.
    """

    def __init__(
        self, models: Sequence[ServedModel], settings: IvySettings, metrics: Metrics
    ) -> None:
        self.services = tuple(ModelService(model, settings, metrics) for model in models)
        self._default = self.services[0]
        self._by_task: dict[Task, ModelService] = {}
        for service in self.services:
            self._by_task.setdefault(service.model.expected.task, service)
        self._by_name: dict[str, ModelService] = {}
        for service in self.services:
            for name in service.model.names:
                other = self._by_name.setdefault(name, service)
                if other is not service:
                    raise ValueError(
                        f"the models {other.name!r} and {service.name!r} both have the name "
                        f"{name!r}: give one of them other names"
                    )

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of every model."""
        return tuple(self._by_name)

    def find(self, name: str | None, *, task: Task | None = None) -> ModelService:
        """The model of that name; without one the first that does the task, else the first.

        Raises:
            HotbedError: MODEL_NOT_FOUND that lists the names there are.
        """
        if name is None:
            return self._by_task.get(task, self._default) if task else self._default
        found = self._by_name.get(name)
        if found is None:
            raise HotbedError(
                ErrorCode.MODEL_NOT_FOUND,
                f"The model {name[:MAX_ECHOED_NAME]!r} is not served here. "
                f"Served: {', '.join(self._by_name)}.",
                param="model",
            )
        return found

    @property
    def is_ready(self) -> bool:
        return all(service.is_ready for service in self.services)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        for service in self.services:
            service.pool.start()

    async def wait_until_ready(self) -> None:
        """Return once every model has enough replicas."""
        for service in self.services:
            await service.wait_until_ready()

    async def close(self) -> None:
        """End streams and threads; requests still waiting get UNAVAILABLE."""
        for service in self.services:
            await service.close()
