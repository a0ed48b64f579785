"""The manifest: what a job is, and which of its parts are done. Written anew after each part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hotbed.bulk.durable import write_durably
from hotbed.bulk.options import Bad, TooLong
from hotbed.bulk.recipe import Recipe
from hotbed.bulk.sources import Source
from hotbed.core.errors import invalid

FORMAT = 1


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Options that decide the bytes of the output.

    `too_long` and `bad` are here as well, but a job that was to fail may go on with another policy:
    no finished part holds a row that it would have changed.
    """

    text: str
    keep: tuple[str, ...]
    vector_column: str
    too_long: TooLong
    bad: Bad
    shard: tuple[int, int]
    dedupe: bool
    rows_per_part: int
    step_tokens: int
    endpoint: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A finished part.

    Attributes:
        number: part p is of the input rows from p * rows_per_part on.
        file: its name in the folder; empty if none of its rows has a vector.
        sha256: of the file.
        size: bytes.
        counts: see `Counts`.
        problems: name of the list of rows that are not embedded as they are; empty: none.
    """

    number: int
    file: str
    sha256: str
    size: int
    counts: dict[str, int]
    problems: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A job; see the module."""

    hotbed: str
    finished: bool
    recipe: Recipe
    settings: Settings
    inputs: list[str]
    sources: list[Source]
    source_rows: list[int]
    columns: dict[str, Any]
    marks: list[list[int]] = []
    parts: list[Part] = []
    format: int = FORMAT

    @property
    def part_numbers(self) -> list[int]:
        """Of all parts of this share, rising."""
        i, n = self.settings.shard
        per_part = self.settings.rows_per_part
        return list(range(i, -(-sum(self.source_rows) // per_part), n))

    def todo(self) -> list[int]:
        """Numbers of the parts that are not done."""
        done = {part.number for part in self.parts}
        return [number for number in self.part_numbers if number not in done]


def manifest_path(folder: Path, shard: tuple[int, int], kind: str = "manifest") -> Path:
    """Name of a share's file: an underscore hides it from readers of Parquet folders."""
    i, n = shard
    return folder / (f"_{kind}.json" if n == 1 else f"_{kind}-{i}-of-{n}.json")


def load_manifest(path: Path) -> Manifest | None:
    """The manifest, or None if there is none.

    Raises:
        HotbedError: INVALID_INPUT if it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise invalid(f"{path} cannot be read: {error}") from None
    if manifest.format != FORMAT:
        raise invalid(f"{path} has format {manifest.format}; this Hotbed reads {FORMAT}")
    return manifest


def save_manifest(path: Path, manifest: Manifest) -> None:
    """Replace it whole."""
    write_durably(path, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")


def check_same_job(
    old: Manifest, *, recipe: Recipe, settings: Settings, sources: list[Source] | None
) -> None:
    """Refuse to go on with another job.

    Args:
        old: what was begun.
        recipe: what is asked for now.
        settings: the same.
        sources: the inputs now; None: they were kept with the job.

    Raises:
        HotbedError: INVALID_INPUT naming each difference.
    """
    differences = [
        *_differences("", old.recipe, recipe),
        *(
            difference
            for difference in _differences("--", old.settings, settings)
            if not _was_to_fail(old.settings, settings, difference)
        ),
    ]
    if sources is not None:
        differences += _source_differences(old.sources, sources)
    if differences:
        raise invalid(
            f"--out holds another job; it differs in {'; '.join(differences)}. Finish it with its "
            "own options, or give another folder."
        )


def check_shares(folder: Path, mine: Manifest) -> None:
    """Refuse to write beside parts of another job: files of parts have the same names in all.

    Raises:
        HotbedError: INVALID_INPUT naming the manifest and each difference.
    """
    for path in sorted(folder.glob("_manifest*.json")):
        other = load_manifest(path)
        if other is None or path == manifest_path(folder, mine.settings.shard):
            continue
        differences = [
            # The model's files may lie elsewhere on another machine; the fingerprint tells.
            *_differences(
                "", msgspec.structs.replace(other.recipe, model=mine.recipe.model), mine.recipe
            ),
            *_differences("", _of_all_shares(other), _of_all_shares(mine)),
        ]
        if differences:
            raise invalid(
                f"--out {folder} holds parts of another job ({path.name}); it differs in "
                f"{'; '.join(differences)}. Give another folder."
            )


class _Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What all shares of a job have in common. Step sizes are the machines' own matter, and a
    policy may have been to fail.
    """

    shares: int
    text: str
    keep: tuple[str, ...]
    vector_column: str
    chunk: bool
    dedupe: bool
    rows_per_part: int
    endpoint: bool
    rows: list[int]


def _of_all_shares(manifest: Manifest) -> _Shared:
    settings = manifest.settings
    return _Shared(
        shares=settings.shard[1],
        text=settings.text,
        keep=settings.keep,
        vector_column=settings.vector_column,
        chunk=settings.too_long == "chunk",
        dedupe=settings.dedupe,
        rows_per_part=settings.rows_per_part,
        endpoint=settings.endpoint,
        rows=manifest.source_rows,
    )


def _differences(prefix: str, old: msgspec.Struct, new: msgspec.Struct) -> list[str]:
    return [
        f"{prefix}{name.replace('_', '-') if prefix else name} (was {before!r}, now {after!r})"
        for name in old.__struct_fields__
        if (before := getattr(old, name)) != (after := getattr(new, name))
    ]


def _was_to_fail(old: Settings, new: Settings, difference: str) -> bool:
    """Whether a policy that was to fail is another one now; chunks have columns of their own."""
    if difference.startswith("--bad "):
        return old.bad == "fail"
    return difference.startswith("--too-long ") and (old.too_long, new.too_long) in {
        ("fail", "truncate"),
        ("fail", "skip"),
    }


def _source_differences(old: list[Source], new: list[Source]) -> list[str]:
    before, after = {s.path: s for s in old}, {s.path: s for s in new}
    found = [f"input {path} (is new)" for path in after if path not in before]
    found += [f"input {path} (is gone)" for path in before if path not in after]
    found += [
        f"input {path} (has changed)"
        for path in before
        if after.get(path, before[path]) != before[path]
    ]
    if not found and [s.path for s in old] != [s.path for s in new]:
        found.append("the order of the inputs")
    return found[:5] + ([f"{len(found) - 5} more"] if len(found) > 5 else [])
