"""The page at the end of a job, and the same as a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import orjson

from hotbed.bulk.durable import write_durably
from hotbed.bulk.manifest import Manifest, manifest_path
from hotbed.bulk.policies import Counts
from hotbed.bulk.progress import Rates, duration

_WORDS = {
    "empty": "left out, no text in them",
    "broken": "left out, broken",
    "not_finite": "left out, the model gave no finite row",
    "too_long_skipped": "left out, too long",
    "truncated": "truncated to the model's limit",
    "chunked": "too long, a row for each part",
    "reused": "of a text computed before",
}


def totals(manifest: Manifest) -> Counts:
    """Over all finished parts, also those of earlier runs."""
    counts = Counts()
    for part in manifest.parts:
        counts.add(Counts(**part.counts))
    return counts


def save_report(folder: Path, manifest: Manifest, rates: Rates) -> Path:
    """Write ``_report.json``: totals, lists of problems, how long this run took."""
    counts = totals(manifest)
    report: dict[str, Any] = {
        "recipe": {
            name: getattr(manifest.recipe, name) for name in manifest.recipe.__struct_fields__
        },
        "inputs": manifest.inputs,
        "parts": len(manifest.parts),
        "bytes": sum(part.size for part in manifest.parts),
        "rows": dataclasses.asdict(counts),
        "skipped": counts.skipped,
        "problems": [part.problems for part in manifest.parts if part.problems],
        "last_run": {
            "rows": rates.rows,
            "tokens": rates.tokens,
            "seconds": round(rates.seconds, 3),
            "tokens_per_s": round(rates.tokens_per_s, 1),
            "device_use": rates.device_use,
        },
    }
    path = manifest_path(folder, manifest.settings.shard, "report")
    write_durably(
        path, orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    return path


def summary(folder: Path, manifest: Manifest, rates: Rates | None) -> str:
    """The page in words; without rates the job was finished before."""
    counts = totals(manifest)
    lines = [
        f"{counts.written:,} rows in {len(manifest.parts):,} parts in {folder} "
        f"({manifest.recipe.dimensions} dimensions, {manifest.recipe.dtype}, fingerprint "
        f"{manifest.recipe.fingerprint}) of {counts.read:,} rows read"
    ]
    lines += [
        f"  {number:,} {words}"
        for name, words in _WORDS.items()
        if (number := getattr(counts, name))
    ]
    if any(part.problems for part in manifest.parts):
        lines.append(f"  each of them is listed in {folder}/_problems-*.jsonl")
    if rates is not None:
        lines.append(
            f"{rates.rows:,} rows, {rates.tokens:,} tokens in {duration(rates.seconds)}: "
            f"{rates.text()}"
        )
    return "\n".join(lines) + "\n"
