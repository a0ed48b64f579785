"""The standard gRPC health service and reflection, for Tulip's own service and for "" (the server).

SERVING is said only after a real step; NOT_SERVING while loading, while draining and for good when
the engine died.
"""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hotbed.tulip.service import SERVICE_NAME

_NAMES = (health.OVERALL_HEALTH, SERVICE_NAME)


class Health:
    """The health of one server; NOT_SERVING at first."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]

    async def register(self, server: grpc.aio.Server) -> None:
        """Add health and reflection to a server that has not started yet."""
        await self._set(health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)

    async def serving(self) -> None:
        """Ready: load balancers may send requests."""
        await self._set(health_pb2.HealthCheckResponse.SERVING)

    async def not_serving(self) -> None:
        """Not ready, for good: later calls of `serving` change nothing."""
        await self._servicer.enter_graceful_shutdown()

    async def _set(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for name in _NAMES:
            await self._servicer.set(name, status)
