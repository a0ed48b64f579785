"""Hotbed: serves text-embedding and reranking models as fast as the hardware allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotbed.bulk.embedder import Embedder
    from hotbed.bulk.reranker import Reranker

__version__ = "0.1.0"
__all__ = ["Embedder", "Reranker", "__version__"]


def __getattr__(name: str) -> object:
    # Lazy: Ivy and `hotbed --help` import this package and must not pay for torch.
    if name == "Embedder":
        from hotbed.bulk.embedder import Embedder  # noqa: PLC0415

        return Embedder
    if name == "Reranker":
        from hotbed.bulk.reranker import Reranker  # noqa: PLC0415

        return Reranker
    raise AttributeError(f"module 'hotbed' has no attribute {name!r}")
