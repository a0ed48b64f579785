"""Certificates for tests of TLS, made by the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs the openssl program"
)


def make_certificates(folder: Path) -> None:
    """ca, server and client, by the openssl program; and one that signed itself."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    for name in ("ca", "stranger"):
        openssl(*new, "-x509", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                "-out", f"{name}.pem")  # fmt: skip
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days",
                "2", "-CAcreateserial", "-extfile", "ext", "-out", f"{name}.pem")  # fmt: skip
