"""Symptoms guarded: two codes for one fault, a lost retry hint, internals in a client's message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.wire import errors
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire import tulip_pb2_grpc as pb_grpc

HTTP = {
    ErrorCode.INVALID_INPUT: 400,
    ErrorCode.MODEL_NOT_FOUND: 404,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.OVERLOADED: 429,
    ErrorCode.DEADLINE_EXCEEDED: 504,
    ErrorCode.CANCELLED: 499,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.INTERNAL: 500,
}


class Failing(pb_grpc.TulipServicer):
    """Ends every Embed with the error it was given."""

    error: HotbedError | None = None

    async def Embed(
        self, request: pb.EmbedRequest, context: grpc.aio.ServicerContext
    ) -> pb.EmbedReply:
        if self.error is None:
            await context.abort(grpc.StatusCode.UNKNOWN, "secret /home/me")
        await errors.abort(context, self.error)


@pytest.fixture
async def failing(tmp_path: Path) -> AsyncIterator[tuple[Failing, pb_grpc.TulipStub]]:
    servicer, address = Failing(), f"unix:{tmp_path / 's'}"
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 1000)])
    pb_grpc.add_TulipServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield servicer, pb_grpc.TulipStub(channel)
    await server.stop(None)


async def rpc_error(stub: pb_grpc.TulipStub, request: pb.EmbedRequest | None = None) -> HotbedError:
    with pytest.raises(grpc.RpcError) as caught:
        await stub.Embed(request or pb.EmbedRequest())
    return errors.error_from_rpc(caught.value)


def test_the_http_table_is_complete_and_as_documented() -> None:
    assert {code: errors.http_status(code) for code in ErrorCode} == HTTP


def test_no_two_codes_share_a_grpc_status_so_the_way_back_is_unique() -> None:
    assert len({errors.grpc_status(code) for code in ErrorCode}) == len(ErrorCode)


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_survives_as_a_message(code: ErrorCode) -> None:
    error = HotbedError(code, "4097 tokens, the limit is 4096", param="input[3]", retry_after_s=1.5)
    back = errors.error_from_proto(
        pb.Error.FromString(errors.error_to_proto(error).SerializeToString())
    )
    assert (back.code, back.message) == (code, error.message)
    assert (back.param, back.retry_after_s) == ("input[3]", 1.5)


def test_no_hint_stays_no_hint_and_a_tiny_hint_is_not_lost() -> None:
    none = errors.error_to_proto(HotbedError(ErrorCode.INTERNAL, "x"))
    assert errors.error_from_proto(none).retry_after_s is None
    assert errors.error_from_proto(none).param is None
    tiny = errors.error_to_proto(HotbedError(ErrorCode.OVERLOADED, "x", retry_after_s=0.00001))
    assert errors.error_from_proto(tiny).retry_after_s == 0.001


def test_a_code_of_a_newer_version_becomes_internal() -> None:
    error = errors.error_from_proto(pb.Error(code="from_the_future", message="m"))
    assert (error.code, error.message) == (ErrorCode.INTERNAL, "m")


@pytest.mark.parametrize("code", ErrorCode)
async def test_an_aborted_call_keeps_code_field_and_hint(
    code: ErrorCode, failing: tuple[Failing, pb_grpc.TulipStub]
) -> None:
    servicer, stub = failing
    servicer.error = HotbedError(code, "why", param="input[0]", retry_after_s=0.25)
    with pytest.raises(grpc.RpcError) as caught:
        await stub.Embed(pb.EmbedRequest())
    assert caught.value.code() is errors.grpc_status(code)
    assert caught.value.details() == "why"
    back = errors.error_from_rpc(caught.value)
    assert (back.code, back.message) == (code, "why")
    assert (back.param, back.retry_after_s) == ("input[0]", 0.25)


async def test_grpcs_own_message_limit_is_too_large_and_not_overloaded(
    failing: tuple[Failing, pb_grpc.TulipStub],
) -> None:
    request = pb.EmbedRequest(batch=pb.Ragged(token_ids=b"x" * 2000))
    error = await rpc_error(failing[1], request)
    assert error.code is ErrorCode.TOO_LARGE
    assert error.retry_after_s is None


async def test_internals_of_an_unknown_failure_do_not_reach_the_client(
    failing: tuple[Failing, pb_grpc.TulipStub],
) -> None:
    error = await rpc_error(failing[1])
    assert error.code is ErrorCode.INTERNAL
    assert "secret" not in error.message


async def test_nobody_listening_is_unavailable_with_a_hint_and_no_address(tmp_path: Path) -> None:
    async with grpc.aio.insecure_channel(f"unix:{tmp_path / 'none'}") as channel:
        error = await rpc_error(pb_grpc.TulipStub(channel))
    assert error.code is ErrorCode.UNAVAILABLE
    assert error.retry_after_s == errors.RETRY_AFTER_S
    assert str(tmp_path) not in error.message


def test_a_bare_rpc_error_is_internal() -> None:
    assert errors.error_from_rpc(grpc.RpcError()).code is ErrorCode.INTERNAL
