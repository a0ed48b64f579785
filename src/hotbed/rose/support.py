"""The table of supported models, from the tables that the code itself goes by.

``python -m hotbed.rose.support > docs/models.md`` writes the page; a test holds that it is current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import get_args

from hotbed.checkpoint.config import MODEL_TYPES
from hotbed.checkpoint.config_rope import ROPE_TYPES
from hotbed.checkpoint.modules import (
    MULTI_VECTOR_MODULES,
    SCORE_MODULES,
    SPARSE_MODULES,
    SUPPORTED_MODULES,
)
from hotbed.checkpoint.multi_vector import HEAD_FILE
from hotbed.checkpoint.records import DENSE_ACTIVATIONS, HeadKind, Pooling
from hotbed.checkpoint.score import CAUSAL, HEADS
from hotbed.checkpoint.sparse import MLM_MODELS, SPARSE_HEAD_FILE
from hotbed.core.output import OutputDtype
from hotbed.rose.attention.select import describe
from hotbed.rose.registry import FAMILIES

_HEAD = """\
# Supported models

Written by `python -m hotbed.rose.support`; do not edit.

A model is served if its `config.json` has one of these types and classes and every field that would
change its vectors has a supported value. Anything else is refused when it is loaded, with the file,
the field and what is supported.
"""

_CHECKED = """\
## What is checked

Every family: seeded random checkpoints with real head dims, in shards, with and without the root
prefix, against `transformers` in fp32 on the CPU (Jina's BERT, which it lacks: the authors' code in
plain torch), and whole paths against sentence-transformers:
cosine at least 0.999999, relative error at most 1e-4; at 1 and 2 tokens, around the window's edge
and at the model's limit; alone, in a mixed batch, permuted. Fields that could be misread (windows,
rotary bases, masks, position offsets) are changed on purpose and must fail that test. The tests
marked `gpu` compare BF16 on a card with fp32 on the CPU: cosine at least 0.999. Real weights, those
that packages carry: all-MiniLM-L6-v2, multilingual-e5-small and SmolLM2-135M (a Llama).
"""


_SCORES = """\
## From rows to scores

Rerankers and classifiers have a head behind the pooled row, in fp32. The activation is sigmoid,
softmax or none: what the files say, else by the number of labels and `problem_type`.
"""
_HEADS: dict[HeadKind, str] = {
    "bert": "pooler (dense, tanh) and classifier; first token",
    "roberta": "classifier (dense, tanh, out_proj); first token",
    "electra": "classifier (dense, GELU, out_proj); first token",
    "distilbert": "pre_classifier (ReLU) and classifier; first token",
    "deberta": "pooler (dense, GELU) and classifier; first token",
    "modernbert": "head (dense, GELU, norm) and classifier; first token or mean",
    "decoder": "score; last token",
    "yes_no": "logit of yes less that of no (Qwen3-Reranker), of 1 less that of 0"
    " (mxbai-rerank-v2); last token",
}


_OUTPUTS = """\
## Outputs

Every embedding model gives `tokens`, the final state of each token. Dense rows come of all but
those of the last two lines. `/v1/models` says what a served model has; what it has not is refused
with the list. bge-m3 publishes its two heads as .pt files, and its weights as pytorch_model.bin,
which are not loaded: where you trust them, `python -m hotbed.rose.convert_weights FOLDER` writes
them as safetensors beside them, with a loader that runs no code of theirs.
"""
_LATE = (
    "Queries may be filled up with a token that all others see (`attend` true); one that they do"
    " not see is refused when the model is loaded, with what to change. Prefixes, lengths and words"
    " without a vector are as the files say; Stanford's own format (`HF_ColBERT`) is not read."
)


def page() -> str:
    """docs/models.md."""
    models = _table(
        ("`model_type`", "`architectures`", "page", "for example"),
        (
            (
                f"`{name}`",
                ", ".join(f"`{c}`" for c in known.classes),
                _link(known.family),
                known.example,
            )
            for name, known in MODEL_TYPES.items()
        ),
    )
    rows = _table(
        ("", "supported"),
        (
            ("modules", " → ".join(SUPPORTED_MODULES) + "; the last three may be absent"),
            (
                "modules of a CrossEncoder",
                " → ".join(SCORE_MODULES) + f" (for {', '.join(CAUSAL)})",
            ),
            (
                "scaling of the rotation",
                f"{', '.join(ROPE_TYPES[1:])}; by a text's own length where the length counts",
            ),
            ("pooling", ", ".join(get_args(Pooling))),
            ("activation of a Dense module", ", ".join(DENSE_ACTIVATIONS)),
            ("type of the rows", ", ".join(dtype.value for dtype in OutputDtype)),
            ("weights", "safetensors, one file or shards, float32, float16 or bfloat16"),
        ),
    )
    outputs = _table(
        ("output", "of models with", "what it is"),
        (
            ("`multi_vector`, `sparse`", f"`{HEAD_FILE}`, `{SPARSE_HEAD_FILE}`",
             "beside dense rows, in the same pass: bge-m3's vector a token (not of the first), and"
             " the largest weight of each token id, special tokens left out"),
            ("`multi_vector`", "modules " + " → ".join(MULTI_VECTOR_MODULES)
             + " (sentence-transformers' MultiVectorEncoder), or PyLate's",
             "a vector a token through the Dense modules"),
            ("`sparse`", "modules " + " → ".join(SPARSE_MODULES) + " (SparseEncoder), or `--task"
             f" sparse` and one of {', '.join(f'`{name}`' for name in MLM_MODELS)}",
             "SPLADE: the largest logit of each token id, log(1 + max(0, x)) of it once or twice"),
        ),
    )  # fmt: skip
    heads = _table(
        ("`architectures`", "head"), ((f"`{name}`", _HEADS[kind]) for name, kind in HEADS.items())
    )
    backends = _table(
        ("attention", "devices", "types", "masks"),
        ((f"`{b.name}`", b.devices, b.dtypes, b.masks) for b in describe()),
    )
    return "\n".join(
        (
            _HEAD,
            models,
            "## From states to rows\n",
            rows,
            _OUTPUTS,
            outputs,
            f"{_LATE}\n",
            _SCORES,
            heads,
            _attention(backends),
            _CHECKED,
        )
    )


def _attention(backends: str) -> str:
    return f"## Attention\n\n{backends}"


def _link(family: str) -> str:
    assert family in FAMILIES, f"{family} has no page: a bug in MODEL_TYPES"
    return f"[{family}](../src/hotbed/rose/models/{family}.py)"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(page())
