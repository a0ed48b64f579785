"""Compiles a C file for this machine's CPU into a shared library, once; later calls find it.

The file's name holds a hash of the source, the flags and all that the compiler defines for this
CPU, so that a cache folder may be shared by machines and outlive a compiler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_COMPILERS = ("cc", "gcc", "clang")
# No -ffast-math: a NaN must stay one.
_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-ffp-contract=fast", "-std=gnu11", "-fPIC")
_LINK = ("-shared", "-pthread", "-lm")
_TIMEOUT_S = 120


class CannotCompileError(Exception):
    """There is no library; the message says why, for a log."""


def compile_library(source: Path, folder: Path) -> Path:
    """The library made from `source`, in `folder`; it appears whole or not at all.

    Raises:
        CannotCompileError: no compiler, it failed, or the folder cannot be written.
    """
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise CannotCompileError(f"there is no C compiler ({', '.join(_COMPILERS)})")
    defined = _run([compiler, *_FLAGS, "-dM", "-E", "-x", "c", os.devnull])
    text = source.read_bytes()
    key = hashlib.sha256(b"\0".join([text, " ".join(_FLAGS + _LINK).encode(), defined]))
    target = folder / f"{source.stem}-{key.hexdigest()[:24]}.so"
    try:
        if not target.is_file():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = Path(scratch) / target.name
                _run([compiler, *_FLAGS, "-o", str(made), str(source), *_LINK])
                made.replace(target)
        if target.stat().st_uid != os.getuid():  # its code will run in this process
            raise CannotCompileError("the library in the cache folder belongs to another user")
    except OSError as error:
        raise CannotCompileError(f"the cache folder: {error.strerror}") from error
    return target


def _run(command: list[str]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=_TIMEOUT_S)  # noqa: S603
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").splitlines()
        first = next((line for line in lines if "error" in line), "it did not say why")
        raise CannotCompileError(f"the C compiler failed: {first[-300:]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompileError(f"the C compiler did not run: {type(error).__name__}") from error
    return done.stdout
