"""Finds a job's inputs: files, folders, globs, standard input; and says whether they changed."""

from __future__ import annotations

import glob
import os
import stat
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
        if not stat.S_ISREG(status.st_mode):
            raise invalid(
                f"input {path} is no regular file, and inputs are read twice: give - to read a "
                "pipe as standard input"
            )
        try:
            path.encode()
        except UnicodeEncodeError:
            raise invalid(f"input {path!r}: its name is no UTF-8") from None
        return Source(path, form, status.st_size, status.st_mtime_ns)


def find_sources(inputs: Sequence[str], form: Format, *, out: Path | None = None) -> list[Source]:
    """All files that the inputs name, each once: in the order of the inputs, sorted in each.

    Args:
        inputs: files, folders (searched through), globs (``**`` too), not ``-``.
        form: of all of them; ``auto`` goes by the names. In folders files of unknown names are
            left out then, and always those whose name, or a folder's on the way, begins with
            ``_`` or ``.``: what Spark, Delta and Hotbed itself keep beside the rows.
        out: folder that is written to: what lies in it is found by no folder and no glob.

    Raises:
        HotbedError: INVALID_INPUT for an input that is not there, names no file that is read, or is
            a file in `out`.
    """
    found: dict[str, Source] = {}
    own = None if out is None else os.path.join(os.path.abspath(out), "")
    for given in inputs:
        if given == STDIN:
            raise invalid("standard input (-) must be the only input")
        paths = _expand(given, form)
        if own is not None:
            if os.path.isfile(given) and os.path.abspath(given).startswith(own):
                raise invalid(f"input {given} lies in --out")
            paths = [p for p in paths if not os.path.abspath(p[0]).startswith(own)]
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
        paths = glob.glob("**", root_dir=given, recursive=True)  # without names that begin with .
        return [
            (path, form)
            for path in sorted(os.path.join(given, p) for p in paths if not _is_hidden(p))
            # A link that leads nowhere is an input that is not there: it is not left out.
            if not os.path.isdir(path) and (form != "auto" or _suffix(path) in _SUFFIXES)
        ]
    if os.path.exists(given):
        return [(given, form)]
    if glob.has_magic(given):
        paths = sorted(glob.glob(given, recursive=True))
        return [(path, form) for path in paths if os.path.isfile(path)]
    raise invalid(f"input {given}: there is no such file or folder")


def _is_hidden(path: str) -> bool:
    return any(name.startswith("_") for name in path.split(os.sep))


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
