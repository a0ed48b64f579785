"""Tiny seeded checkpoints of the models that give more than dense rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.checkpoints import (
    edit_json,
    save_tensors,
    write_dense,
    write_json,
    write_tensors,
)
from tests.support.families import make_family
from tests.support.tiny_weights import random_tensors

ST_FILES = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")


def make_bge_m3(
    folder: Path, *, heads: Sequence[str] = ("colbert", "sparse"), **options: Any
) -> Path:
    """An XLM-R embedder with bge-m3's two heads in files of their own, as safetensors."""
    make_family(folder, "xlm-roberta", pooling="cls", **options)
    edit_json(
        folder / "tokenizer_config.json",
        cls_token="[CLS]", eos_token={"content": "[SEP]"}, pad_token="[PAD]", unk_token="[UNK]",
    )  # fmt: skip
    for number, head in enumerate(heads):
        width = 1 if head == "sparse" else 128
        tensors = random_tensors({"weight": (width, 128), "bias": (width,)}, seed=7 + number)
        save_tensors(folder / f"{head}_linear.safetensors", tensors)
    return folder


def make_mlm(
    folder: Path, model_type: str, *, sharded: bool = True, untied: bool = False, **changes: Any
) -> Path:
    """A bare masked language model of a family; names and shapes are those of `transformers`."""
    import torch
    from transformers import AutoConfig, AutoModelForMaskedLM

    make_family(folder, model_type, sharded=False, **changes)
    for name in ST_FILES:
        (folder / name).unlink()
    values = json.loads((folder / "config.json").read_text())
    values["tie_word_embeddings"] = not untied
    with torch.device("meta"):
        model = AutoModelForMaskedLM.from_config(AutoConfig.for_model(**values))
    values["architectures"] = [type(model).__name__]
    write_json(folder / "config.json", values)
    tied = set() if untied else set(model.all_tied_weights_keys)
    shapes = {n: tuple(t.shape) for n, t in model.state_dict().items() if n not in tied}
    tensors = random_tensors(shapes, seed=1)
    write_tensors(folder, tensors, dtype="float32", sharded=sharded, prefix="")
    return folder


def make_splade(
    folder: Path, model_type: str = "bert", *, old: bool = False, **pooling: Any
) -> Path:
    """A SparseEncoder of sentence-transformers.

    Args:
        folder: made if need be.
        model_type: of the masked language model.
        old: with the module names of the first versions.
        pooling: fields of the pooling's config.json.
    """
    make_mlm(folder, model_type)
    names = (
        ("sentence_transformers.sparse_encoder.models.MLMTransformer",
         "sentence_transformers.sparse_encoder.models.SpladePooling")
        if old
        else ("sentence_transformers.base.modules.transformer.Transformer",
              "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling")
    )  # fmt: skip
    _write_modules(folder, [("", names[0]), ("1_SpladePooling", names[1])])
    (folder / "1_SpladePooling").mkdir()
    config = {"pooling_strategy": "max", "activation_function": "relu"} | pooling
    write_json(folder / "1_SpladePooling" / "config.json", config)
    write_json(
        folder / "config_sentence_transformers.json",
        {"model_type": "SparseEncoder", "prompts": {"query": "q: ", "document": ""}},
    )
    if not old:
        write_json(
            folder / "sentence_bert_config.json",
            {"transformer_task": "fill-mask", "module_output_name": "token_embeddings",
             "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}},
        )  # fmt: skip
    return folder


def make_colbert(
    folder: Path,
    *,
    pylate: bool = False,
    widths: Sequence[int] = (32,),
    residual: bool = False,
    skiplist: Sequence[str] = (".", ","),
    settings: dict[str, Any] | None = None,
    transformer: dict[str, Any] | None = None,
    model_type: str = "bert",
) -> Path:
    """A MultiVectorEncoder of sentence-transformers, or a folder as PyLate writes it.

    Args:
        folder: made if need be.
        pylate: in PyLate's form: no mask and normalisation among the modules.
        widths: of the Dense modules.
        residual: whether those add their input.
        skiplist: words without a vector in documents.
        settings: more fields of config_sentence_transformers.json.
        transformer: more fields of sentence_bert_config.json.
        model_type: of the encoder.
    """
    make_family(folder, model_type)
    (folder / "1_Pooling" / "config.json").unlink()
    st = "sentence_transformers"
    modules = [
        ("", f"{st}.models.Transformer" if pylate else f"{st}.base.modules.transformer.Transformer")
    ]
    width = 128
    for number, out in enumerate(widths, start=1):
        name = f"{number}_Dense"
        modules.append(
            (name, "pylate.models.Dense.Dense" if pylate else f"{st}.base.modules.dense.Dense")
        )
        write_dense(folder / name, width, out)
        if residual:
            edit_json(folder / name / "config.json", use_residual=True)
            if width != out:
                shapes = {"linear.weight": (out, width), "residual.weight": (out, width)}
                save_tensors(folder / name / "model.safetensors", random_tensors(shapes, seed=3))
        if not pylate:
            edit_json(
                folder / name / "config.json",
                module_input_name="token_embeddings", module_output_name="token_embeddings",
            )  # fmt: skip
        width = out
    if not pylate:
        kind = f"{st}.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
        modules += [("8_Mask", kind), ("9_Normalize", f"{st}.base.modules.normalize.Normalize")]
        for name, config in (
            ("8_Mask", {"skiplist_words": list(skiplist), "skiplist_tasks": ["document"]}),
            ("9_Normalize", {"module_input_name": "token_embeddings",
                             "module_output_name": "token_embeddings"}),
        ):  # fmt: skip
            (folder / name).mkdir()
            write_json(folder / name / "config.json", config)
    _write_modules(folder, modules)
    made: dict[str, Any] = {"model_type": "ColBERT" if pylate else "MultiVectorEncoder"}
    if pylate:
        made |= {"query_prefix": "", "document_prefix": "", "do_query_expansion": False}
        made |= {"query_length": 32, "document_length": 90, "skiplist_words": list(skiplist)}
    else:
        made["prompts"] = {"query": "q: ", "document": "d: "}
    write_json(folder / "config_sentence_transformers.json", made | (settings or {}))
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": 96, "do_lower_case": False} | (transformer or {}),
    )
    return folder


def _write_modules(folder: Path, modules: Sequence[tuple[str, str]]) -> None:
    write_json(
        folder / "modules.json",
        [{"idx": i, "name": str(i), "path": p, "type": t} for i, (p, t) in enumerate(modules)],
    )
