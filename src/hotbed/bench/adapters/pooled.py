"""How a folder's rows are pooled, for systems that leave it to their caller."""

from __future__ import annotations

import json
from pathlib import Path


def pooling_of(folder: str) -> tuple[str, bool]:
    """(``mean``, ``cls`` or ``last``; whether rows are normalised), as modules.json says.

    Raises:
        ValueError: it says something else.
    """
    modules = json.loads((Path(folder) / "modules.json").read_text(encoding="utf-8"))
    kinds = {m["type"].rpartition(".")[2]: m["path"] for m in modules}
    if not {"Transformer", "Pooling"} <= set(kinds) <= {"Transformer", "Pooling", "Normalize"}:
        raise ValueError(f"{folder}: modules {', '.join(kinds)} are not supported here")
    path = Path(folder) / kinds["Pooling"] / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    names = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}
    chosen = [name for name, key in names.items() if config.get(f"pooling_mode_{key}")]
    if len(chosen) != 1:
        raise ValueError(f"{path}: one of mean, cls and last token is supported")
    return chosen[0], "Normalize" in kinds
