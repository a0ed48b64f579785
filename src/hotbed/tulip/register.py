"""Brings the service onto a gRPC server, with messages read so that garbage is the client's fault.

The generated registration lets gRPC read them: it answers what it cannot read UNKNOWN, in words of
Python's, and logs a traceback each time.
"""

from __future__ import annotations

import functools
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from hotbed.core.errors import HotbedError, invalid
from hotbed.wire import tulip_pb2 as pb


def register(service: Any, server: grpc.aio.Server) -> None:
    """Let the server answer calls with the methods of the service that have the proto's names.

    They get None for a message that cannot be read.
    """
    descriptor = pb.DESCRIPTOR.services_by_name["Tulip"]
    handlers = {
        method.name: _HANDLERS[method.client_streaming, method.server_streaming](
            getattr(service, method.name),
            request_deserializer=functools.partial(_read, GetMessageClass(method.input_type)),
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
        for method in descriptor.methods
    }
    handler = grpc.method_handlers_generic_handler(descriptor.full_name, handlers)
    server.add_generic_rpc_handlers((handler,))


def unreadable(name: str) -> HotbedError:
    """What the client is told."""
    return invalid(f"a message is no {name} of {pb.DESCRIPTOR.package}")


_HANDLERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def _read(kind: type[Message], data: bytes) -> Message | None:
    try:
        return kind.FromString(data)
    except DecodeError:
        return None
