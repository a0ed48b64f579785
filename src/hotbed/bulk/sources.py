"""Finds a job's inputs: files, folders, globs, standard input; and says whether they changed."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import orjson

from hotbed.bulk.options import Format
from hotbed.core.errors import invalid

STDIN = "-"
_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".md": "text",
}
_COMPRESSED = {".gz", ".zst", ".bz2"}
LINE_FORMATS = frozenset({"jsonl", "csv", "tsv", "lines"})


class Source(msgspec.Struct, frozen=True):
    """One input file.

    Attributes:
        path: as it was found.
        format: never ``auto``.
        size: bytes.
        mtime_ns: when it was last changed.
    """

    path: str
    format: Format
    size: int
    mtime_ns: int

    @staticmethod
    def of(path: str, form: Format) -> Source:
        """The file as it is now.

        Raises:
            HotbedError: INVALID_INPUT if it cannot be read or its format cannot be told.
        """
        if form == "auto":
            form = _format_by_name(path)
        try:
            status = os.stat(path)
        except OSError as error:
            raise invalid(f"input {path}: {error.strerror}") from None
        return Source(path, form, status.st_size, status.st_mtime_ns)


def find_sources(inputs: Sequence[str], form: Format) -> list[Source]:
    """All files that the inputs name, each once: in the order of the inputs, sorted in each.

    Args:
        inputs: files, folders (searched through), globs (``**`` too), not ``-``.
        form: of all of them; ``auto`` goes by the names. In folders files of unknown names are
            left out then.

    Raises:
        HotbedError: INVALID_INPUT for an input that is not there or names no file that is read.
    """
    found: dict[str, Source] = {}
    for given in inputs:
        if given == STDIN:
            raise invalid("standard input (-) must be the only input")
        paths = _expand(given, form)
        if not paths:
            raise invalid(f"input {given}: no file of a known format there")
        for path, kind in paths:
            found.setdefault(os.path.abspath(path), Source.of(path, kind))
    return list(found.values())


def spool_stdin(path: Path) -> None:
    """Copy standard input to a file: what is read once only could not be resumed."""
    with path.open("wb") as file:
        while piece := sys.stdin.buffer.read(1 << 20):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _expand(given: str, form: Format) -> list[tuple[str, Format]]:
    if os.path.isdir(given):
        if os.path.exists(os.path.join(given, "state.json")):
            return [(path, "arrow") for path in _dataset_files(Path(given))]
        if os.path.exists(os.path.join(given, "dataset_dict.json")):
            raise invalid(f"input {given} holds several splits: name one of its folders")
        paths = glob.glob(os.path.join(glob.escape(given), "**", "*"), recursive=True)
        return [
            (path, form)
            for path in sorted(paths)
            if os.path.isfile(path) and (form != "auto" or _suffix(path) in _SUFFIXES)
        ]
    if os.path.exists(given):
        return [(given, form)]
    if glob.has_magic(given):
        paths = sorted(glob.glob(given, recursive=True))
        return [(path, form) for path in paths if os.path.isfile(path)]
    raise invalid(f"input {given}: there is no such file or folder")


def _dataset_files(folder: Path) -> list[str]:
    """Arrow files of a dataset that Hugging Face's `save_to_disk` wrote, in its order."""
    state = orjson.loads((folder / "state.json").read_bytes())
    if state.get("_indices_data_files"):
        raise invalid(f"input {folder} has an indices mapping: flatten_indices() before saving it")
    return [str(folder / file["filename"]) for file in state["_data_files"]]


def _suffix(path: str) -> str:
    """The suffix that tells the format: before that of a compression."""
    base, suffix = os.path.splitext(path.lower())
    return os.path.splitext(base)[1] if suffix in _COMPRESSED else suffix


def _format_by_name(path: str) -> Format:
    form = _SUFFIXES.get(_suffix(path))
    if form is None:
        raise invalid(
            f"input {path}: its name does not tell its format ({', '.join(_SUFFIXES)}, also with "
            f"{', '.join(sorted(_COMPRESSED))} behind): give --format"
        )
    return form
