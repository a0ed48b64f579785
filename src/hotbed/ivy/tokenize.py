"""Text to token ids without holding up the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hotbed.core.errors import HotbedError, shift_input_index
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.bounded import map_bounded
from hotbed.text.backend import Token
from hotbed.text.chunked import encode_chunks
from hotbed.text.tokenizer import EncodeOptions, Tokenizer

T = TypeVar("T")

# Below so much estimated work the tokenizer runs on the event loop: handing over to a thread costs
# 60 to 160 us of CPU, and all the tokenizers release the GIL there (2026-11-30).
INLINE_US = 2_000
# Larger requests are cut into pieces of about this size, so that requests take turns.
PIECE_US = 10_000


class TokenizeStage:
    """The tokenizer and its threads."""

    def __init__(self, tokenizer: Tokenizer, *, num_threads: int) -> None:
        self._tokenizer = tokenizer
        self.num_threads = num_threads
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix="tokenize")

    def close(self) -> None:
        """Wait for running pieces and end the threads."""
        self._executor.shutdown(cancel_futures=True)

    async def encode(self, texts: Sequence[str], options: EncodeOptions) -> RaggedBatch:
        """Token ids of the texts, in order.

        Raises:
            HotbedError: INVALID_INPUT with param ``input[i]``.
        """
        if self._tokenizer.estimate_us(texts) < INLINE_US:
            return self._tokenizer.encode(texts, options).batch
        pieces = self._cut(texts)
        loop = asyncio.get_running_loop()

        async def encode_piece(piece: tuple[int, Sequence[str]]) -> RaggedBatch:
            start, part = piece
            try:
                encoded = await loop.run_in_executor(
                    self._executor, self._tokenizer.encode, part, options
                )
            except HotbedError as error:
                raise shift_input_index(error, start) from None
            return encoded.batch

        return RaggedBatch.concatenate(
            await map_bounded(encode_piece, pieces, limit=self.num_threads)
        )

    async def encode_chunks(self, documents: list[list[str]], prompt: str) -> RaggedBatch:
        """As `hotbed.text.chunked.encode_chunks`."""
        costs = [self._tokenizer.estimate_us(chunks) for chunks in documents]
        if sum(costs) < INLINE_US:
            return encode_chunks(self._tokenizer, documents, prompt=prompt)
        pieces: list[tuple[int, int]] = []
        start, cost_us = 0, 0.0
        for index, cost in enumerate(costs):
            cost_us += cost
            if cost_us >= PIECE_US or index == len(costs) - 1:
                pieces.append((start, index + 1))
                start, cost_us = index + 1, 0.0

        async def encode_piece(piece: tuple[int, int]) -> RaggedBatch:
            first, stop = piece
            try:
                return await self.run(
                    lambda: encode_chunks(self._tokenizer, documents[first:stop], prompt=prompt)
                )
            except HotbedError as error:
                raise shift_input_index(error, first) from None

        return RaggedBatch.concatenate(
            await map_bounded(encode_piece, pieces, limit=self.num_threads)
        )

    async def run(self, work: Callable[[], T]) -> T:
        """Other work of a tokenizer on one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def check(self, arrays: list[list[int]], options: EncodeOptions) -> RaggedBatch:
        """Token ids as the client gave them, checked."""
        num_ids = sum(map(len, arrays))
        # About 0.05 us an id and 5 us an array (2026-11-30).
        if num_ids * 0.05 + len(arrays) * 5 < INLINE_US:
            return self._tokenizer.check_token_arrays(arrays, options).batch
        loop = asyncio.get_running_loop()
        encoded = await loop.run_in_executor(
            self._executor, self._tokenizer.check_token_arrays, arrays, options
        )
        return encoded.batch

    async def describe(
        self, texts: Sequence[str], *, prefix: str = "", add_special_tokens: bool = True
    ) -> list[list[Token]]:
        """As `Tokenizer.describe`."""
        describe = functools.partial(
            self._tokenizer.describe, texts, prefix=prefix, add_special_tokens=add_special_tokens
        )
        # An object a token: about 1 us each beside the tokenizing (2026-11-30).
        if 2 * self._tokenizer.estimate_us(texts) + sum(map(len, texts)) / 4 < INLINE_US:
            return describe()
        return await asyncio.get_running_loop().run_in_executor(self._executor, describe)

    async def decode(
        self, arrays: Sequence[Sequence[int]], *, skip_special_tokens: bool
    ) -> list[str]:
        """As `Tokenizer.decode`."""
        decode = functools.partial(
            self._tokenizer.decode, arrays, skip_special_tokens=skip_special_tokens
        )
        if sum(map(len, arrays)) < INLINE_US:  # under 1 us an id
            return decode()
        return await asyncio.get_running_loop().run_in_executor(self._executor, decode)

    def _cut(self, texts: Sequence[str]) -> list[tuple[int, Sequence[str]]]:
        """(index of the first text, texts) of pieces of about PIECE_US each."""
        pieces = []
        start, cost_us = 0, 0.0
        for index, text in enumerate(texts):
            cost_us += self._tokenizer.estimate_us((text,))
            if cost_us >= PIECE_US:
                pieces.append((start, texts[start : index + 1]))
                start, cost_us = index + 1, 0.0
        if start < len(texts):
            pieces.append((start, texts[start:]))
        return pieces
