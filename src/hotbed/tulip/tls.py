"""The server's TLS, and the mutual kind in which only clients with a certificate are served."""

from __future__ import annotations

from pathlib import Path

import grpc

from hotbed.wire.tls import check_pem


def server_credentials(
    cert: Path, key: Path, *, client_ca: Path | None = None
) -> grpc.ServerCredentials:
    """Credentials of a server.

    Args:
        cert: the server's certificate chain, PEM.
        key: its private key, PEM.
        client_ca: certificates, PEM, one of which must have signed a client's; None: any client.

    Raises:
        OSError: a file cannot be read, or is not what it should be.
    """
    check_pem(cert, key, client_ca)
    roots = None if client_ca is None else client_ca.read_bytes()
    return grpc.ssl_server_credentials(
        [(key.read_bytes(), cert.read_bytes())],
        root_certificates=roots,
        require_client_auth=roots is not None,
    )
