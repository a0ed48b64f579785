"""Files that are there whole or not at all, also after a crash of the machine."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hotbed.core.errors import invalid

TEMPORARY_PREFIX = "_tmp-"


class DurableFile:
    """Written under a temporary name in the same folder; `commit` gives it its own.

    Attributes:
        size: bytes written so far.
    """

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._path = path
        # Two may write the same file at once: a worker that was given up, and who took over.
        self._temporary = path.with_name(f"{_temporary_name(path.name)}{secrets.token_hex(4)}")
        self._file: BinaryIO = self._temporary.open("wb")
        self._sha256 = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        """Append; the checksum is taken on the way."""
        self._sha256.update(data)
        self.size += len(data)
        return self._file.write(data)

    @property
    def closed(self) -> bool:
        """For Arrow, which takes this for a file."""
        return self._file.closed

    def flush(self) -> None:
        """For Arrow; `commit` brings it to the disk."""

    def close(self) -> None:
        """For Arrow; `commit` and `discard` close the file."""

    def commit(self) -> str:
        """Flush to the disk, then rename over what may be there.

        Returns:
            SHA-256 of what was written, as hex.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._path)
        sync_folder(self._path.parent)
        return self._sha256.hexdigest()

    def discard(self) -> None:
        """Close and delete; what is buffered needs no place on a full disk."""
        with suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


def write_durably(path: Path, data: bytes) -> str:
    """Write a small file whole; the SHA-256 of it as hex."""
    file = DurableFile(path)
    try:
        file.write(data)
        return file.commit()
    except OSError:
        file.discard()
        raise


def remove_temporaries(folder: Path, names: Collection[str]) -> None:
    """Delete what killed writers of these files left in the folder."""
    prefixes = tuple(map(_temporary_name, names))
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        if path.name.startswith(prefixes):
            path.unlink(missing_ok=True)


def _temporary_name(name: str) -> str:
    return f"{TEMPORARY_PREFIX}{name}."


def sync_folder(folder: Path) -> None:
    """Bring the folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; the system frees it when the process ends, however it ends.

    Raises:
        HotbedError: INVALID_INPUT if another process holds it.
    """
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise invalid(f"--out {path.parent}: another process works on this job") from None
        yield
