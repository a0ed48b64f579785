"""How the gateway reaches its replicas: time limits, keep-alive, TLS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import grpc

from hotbed.core.errors import invalid
from hotbed.ivy.settings import IvySettings
from hotbed.wire.limits import channel_options
from hotbed.wire.tls import ClientTls, open_channel

# Each attempt has a channel of its own; without this gRPC would share the connection of equal
# channels, and with it the pause (1 s and more) after a failed attempt.
_OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What every connection to a replica has; times in seconds.

    Attributes:
        connect_timeout_s: for the replica's first answer.
        max_backoff_s: longest pause between two attempts.
        keepalive_time_s: a silent replica is pinged after so long.
        keepalive_timeout_s: and gone if it does not answer for so long.
        tls: None: no TLS.
    """

    connect_timeout_s: float
    max_backoff_s: float
    keepalive_time_s: float
    keepalive_timeout_s: float
    tls: ClientTls | None = None

    @classmethod
    def of(cls, settings: IvySettings) -> Self:
        """As the settings say.

        Raises:
            HotbedError: INVALID_INPUT if a TLS file cannot be read.
        """
        tls = None
        if settings.replica_tls_ca is not None:
            tls = ClientTls(
                ca=settings.replica_tls_ca,
                cert=settings.replica_tls_cert,
                key=settings.replica_tls_key,
                server_name=settings.replica_tls_name,
            )
            try:
                tls.credentials()
            except OSError as error:
                raise invalid(f"replica_tls_ca, _cert or _key: {error}") from None
        return cls(
            connect_timeout_s=settings.connect_timeout_s,
            max_backoff_s=settings.max_backoff_s,
            keepalive_time_s=settings.replica_keepalive_time_s,
            keepalive_timeout_s=settings.replica_keepalive_timeout_s,
            tls=tls,
        )

    def open(self, address: str) -> grpc.aio.Channel:
        """A connection of its own. TLS files are read anew, so that renewed ones are taken.

        Raises:
            OSError: one of them cannot be read.
        """
        options = channel_options(
            keepalive_time_s=self.keepalive_time_s, keepalive_timeout_s=self.keepalive_timeout_s
        )
        return open_channel(address, [*options, _OWN_CONNECTION], self.tls)
