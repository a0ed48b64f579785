"""The Python API: texts in, one array out, in this process and without a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from hotbed.bulk.more_outputs import MoreOutputs
from hotbed.bulk.windows import compute, compute_batch
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.core.errors import HotbedError, shift_input_index
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.engine import RoseEngine
from hotbed.text.chunked import encode_chunks
from hotbed.text.multi_vector import check_marks
from hotbed.text.prompts import resolve_prompt
from hotbed.text.tokenizer import EncodeOptions, Tokenizer


class Embedder(MoreOutputs):
    """One embedding model in this process.

    >>> with Embedder() as embedder:
    ...     rows = embedder.embed(["a first text", "a second one"])

    Args:
        model: local folder, installed package or hub name of the model.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: type of the compute: ``auto`` (float32 on a CPU, bfloat16 on a GPU), ``float32``,
            ``bfloat16`` or, on a GPU, ``fp8``.
        invariant: whether a text's row must be the same bytes alone and in every batch.
        num_threads: CPU threads; None takes torch's default.
        offline: True forbids network calls; None follows ``HF_HUB_OFFLINE``.
        fast_tokenizers: ``auto`` uses an installed fast tokenizer that passes its self-check.
        task: ``sparse`` reads a bare masked language model as a SPLADE; other models say what
            they are.
        attention: backend on a GPU: ``auto``, ``sdpa``, ``varlen`` or ``fa4``.
        kernel_dir: folder of kernels built ahead of time, for a GPU.

    `info.widths` names the outputs of the model. Dense rows are what `embed` gives; for the others
    see `embed_tokens`, `embed_multi_vector`, `embed_sparse` and `embed_outputs`.

    Raises:
        HotbedError: the model cannot be found, read or run; the message says what is wrong.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        device: str = "auto",
        dtype: str = "auto",
        invariant: bool = False,
        num_threads: int | None = None,
        offline: bool | None = None,
        fast_tokenizers: Literal["auto", "off"] = "auto",
        task: Literal["embed", "sparse"] = "embed",
        attention: str = "auto",
        kernel_dir: Path | None = None,
    ) -> None:
        checkpoint = load_checkpoint(model, offline=offline, task=task)
        self._multi_vector = checkpoint.multi_vector
        self._prompts = checkpoint.prompts
        self._engine = RoseEngine.load(
            checkpoint,
            device=device,
            dtype=dtype,
            invariant=invariant,
            attention=AttentionSettings(attention, kernel_dir),
            num_threads=num_threads,
        )
        self._tokenizer = Tokenizer.load(
            checkpoint.tokenizer,
            max_tokens=checkpoint.max_tokens,
            vocab_size=self.info.vocab_size,
            fast=fast_tokenizers,
        )
        if self._multi_vector is not None:
            check_marks(self._tokenizer, self._multi_vector)

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        input_type: Literal["query", "document"] | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        output_dtype: str = "float32",
        normalize: bool | None = None,
        truncate: bool = False,
        truncation_side: Literal["left", "right"] = "right",
        show_progress: bool | None = None,
    ) -> NDArray[Any]:
        """Embed texts.

        Args:
            texts: one text or several; none of them empty or white space only.
            input_type: picks the model's query or document prompt, if it has one.
            prompt_name: picks a prompt of the model by name.
            dimensions: leading dimensions to keep, 1 to `info.dimensions`; None keeps all.
            output_dtype: ``float32``, ``float16``, ``int8``, ``binary`` or ``ubinary``; the last
                two pack eight dimensions a byte.
            normalize: L2-normalise the rows; None does what the model's files say.
            truncate: cut texts longer than `info.max_tokens` instead of refusing them.
            truncation_side: the end that is cut.
            show_progress: a bar on stderr; None shows it on a terminal from 1,000 texts on.

        Returns:
            [row width] for one text, [texts, row width] for a sequence, in the order given.

        Raises:
            HotbedError: INVALID_INPUT naming the text's index, or the argument, and the limit;
                INTERNAL if the model gave a non-finite row.
        """
        if isinstance(texts, str):
            rows: NDArray[Any] = self.embed(
                [texts],
                input_type=input_type,
                prompt_name=prompt_name,
                dimensions=dimensions,
                output_dtype=output_dtype,
                normalize=normalize,
                truncate=truncate,
                truncation_side=truncation_side,
                show_progress=False,
            )[0]
            return rows
        self.info.check_output("dense")
        spec = self._spec(dimensions, output_dtype, normalize)
        options = EncodeOptions(
            prefix=resolve_prompt(self._prompts, prompt_name=prompt_name, input_type=input_type),
            truncate=truncate,
            truncation_side=truncation_side,
        )

        def encode(start: int, stop: int) -> RaggedBatch:
            try:
                return self._tokenizer.encode(texts[start:stop], options).batch
            except HotbedError as error:
                raise shift_input_index(error, start) from None

        return compute(
            self._engine, len(texts), encode, spec, what="embedding", show_progress=show_progress
        )

    def embed_chunks(
        self,
        documents: Sequence[Sequence[str]],
        *,
        input_type: Literal["query", "document"] | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        output_dtype: str = "float32",
        normalize: bool | None = None,
    ) -> list[NDArray[Any]]:
        """Embed the chunks of documents, each chunk in the light of its whole document.

        A document is read as one sequence; the row of a chunk is the mean over its own tokens. What
        pplx-embed-context-v1 is made for (its separator is put between the chunks), and what is
        known as late chunking with other models that pool by mean.

        Args:
            documents: the chunks of each, in order. All chunks of one together are at most
                `info.max_tokens` long; nothing is truncated.
            input_type: picks the model's prompt; it stands before the first chunk, in no row.
            prompt_name: picks a prompt of the model by name.
            dimensions: as for `embed`, and so the other arguments.
            output_dtype: as for `embed`.
            normalize: as for `embed`.

        Returns:
            [chunks, row width] for each document.

        Raises:
            HotbedError: INVALID_INPUT naming the document and chunk, the limit, or the pooling of a
                model that does not pool by mean; INTERNAL if a row is not finite.
        """
        self.info.check_spans()
        spec = self._spec(dimensions, output_dtype, normalize)
        prompt = resolve_prompt(self._prompts, prompt_name=prompt_name, input_type=input_type)
        batch = encode_chunks(self._tokenizer, documents, prompt=prompt)
        rows = compute_batch(self._engine, batch, spec)
        return [rows[slice(*batch.rows_of(i, i + 1))] for i in range(batch.num_sequences)]
