"""What the folders of converted models have in common."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def packaged_file(module: str, file: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        package = module.replace("_", "-")
        raise FileNotFoundError(f"{package} is needed: see requirements-weights.txt")
    return Path(spec.origin).parent / file


def tokenizer_config(max_length: int, *, pad: str) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "pad_token": pad,
    }


def write_modules(folder: Path, hidden: int, pooling: str, prompts: dict[str, str]) -> None:
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    (folder / "1_Pooling").mkdir(exist_ok=True)
    write_files(
        folder,
        {
            "modules.json": modules,
            "1_Pooling/config.json": {"word_embedding_dimension": hidden, pooling: True},
            "config_sentence_transformers.json": {"prompts": prompts, "default_prompt_name": None},
        },
    )


def write_files(folder: Path, files: Mapping[str, object]) -> None:
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, indent=2), encoding="utf-8")
