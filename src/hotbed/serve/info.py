"""Asks a replica what it serves."""

from __future__ import annotations

import grpc

from hotbed.core.model_info import ModelInfo
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.codec import decode_info
from hotbed.wire.limits import channel_options
from hotbed.wire.tulip_pb2_grpc import TulipStub


async def ask_info(address: str) -> ModelInfo:
    """Facts of the model at a gRPC address; waits until the replica is there, however long.

    Raises:
        grpc.RpcError: it went away while it was asked.
    """
    async with grpc.aio.insecure_channel(address, options=channel_options()) as channel:
        stub = TulipStub(channel)  # type: ignore[no-untyped-call]
        reply = await stub.Info(pb.InfoRequest(), wait_for_ready=True)
    info, _ = decode_info(reply)
    return info
