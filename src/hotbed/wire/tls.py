"""A client's TLS to a replica, and the mutual kind in which it shows a certificate of its own."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """How a client knows a replica, and the replica the client.

    Attributes:
        ca: certificates, PEM, one of which must have signed the replica's.
        cert: the client's own certificate chain, PEM; None: it shows none.
        key: its private key, PEM.
        server_name: the name that the replica's certificate must have; None: the host of its
            address.

    Raises:
        ValueError: one of `cert` and `key` is missing.
    """

    ca: Path
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("tls: cert and key belong together: one is missing")

    def credentials(self) -> grpc.ChannelCredentials:
        """What the files hold now.

        Raises:
            OSError: a file cannot be read, or is not what it should be.
        """
        check_pem(self.cert, self.key, self.ca)
        return grpc.ssl_channel_credentials(
            self.ca.read_bytes(),
            None if self.key is None else self.key.read_bytes(),
            None if self.cert is None else self.cert.read_bytes(),
        )

    def options(self) -> list[tuple[str, str]]:
        """Of the channel, beside the credentials."""
        if self.server_name is None:
            return []
        return [("grpc.ssl_target_name_override", self.server_name)]


def open_channel(
    address: str, options: list[tuple[str, int]], tls: ClientTls | None = None
) -> grpc.aio.Channel:
    """A channel to one replica, with TLS if it is given; connects when it is first used.

    Raises:
        OSError: a file of `tls` cannot be read, or is not what it should be.
    """
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, tls.credentials(), options=[*options, *tls.options()])


def check_pem(cert: Path | None, key: Path | None, ca: Path | None) -> None:
    """Find faults of the files now: gRPC takes anything, and then just does not connect.

    Args:
        cert: a certificate chain, PEM; with `key` or not at all.
        key: its private key, PEM, without a passphrase.
        ca: certificates of authorities, PEM.

    Raises:
        OSError: one cannot be read, or holds something else, or key and certificate are no pair.
    """
    for path in (cert, key, ca):
        if path is not None:
            path.read_bytes()  # its error names the file; that of OpenSSL does not
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    what: object = ca
    try:
        if ca is not None:
            context.load_verify_locations(cafile=ca)
        if cert is not None:
            what = f"{cert} and {key}"
            context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        raise OSError(f"{what}: {error.reason or error}") from None
