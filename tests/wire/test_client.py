"""The small client of other programs: rows, errors and deadlines, against a server made here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.wire import codec, errors
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire import tulip_pb2_grpc as pb_grpc
from hotbed.wire.client import TulipClient
from tests.wire.test_codec import INFO, LIMITS


class Server(pb_grpc.TulipServicer):
    """A row is the sequence's length and first id, in the dtype asked for."""

    error: HotbedError | None = None
    hangs = False

    async def Embed(
        self, request: pb.EmbedRequest, context: grpc.aio.ServicerContext
    ) -> pb.EmbedReply:
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            await errors.abort(context, self.error)
        batch, spec = codec.decode_ragged(request.batch), codec.decode_output(request.output)
        first = batch.token_ids[batch.cu_seqlens[:-1]]
        rows = np.stack([batch.lengths, first], axis=1).astype(spec.dtype.numpy)
        timings = pb.Timings(queue_us=1000, device_us=2000, total_us=3000)
        return pb.EmbedReply(rows=codec.encode_rows(rows, spec, timings, "print"))

    async def Info(
        self, request: pb.InfoRequest, context: grpc.aio.ServicerContext
    ) -> pb.InfoReply:
        if self.error is not None:
            await errors.abort(context, self.error)
        return codec.encode_info(INFO, LIMITS, "0")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[Server, str]]:
    servicer, address = Server(), f"unix:{tmp_path / 's'}"
    server = grpc.aio.server()
    pb_grpc.add_TulipServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    await server.start()
    yield servicer, address
    await server.stop(None)


async def test_rows_timings_and_fingerprint(server: tuple[Server, str]) -> None:
    async with TulipClient(server[1]) as client:
        embedding = await client.embed([[5, 6], [7]])
        assert embedding.rows.tolist() == [[2, 5], [1, 7]]
        assert embedding.rows.dtype == np.float32
        assert embedding.fingerprint == "print"
        assert (embedding.queue_s, embedding.device_s, embedding.total_s) == (0.001, 0.002, 0.003)
        assert await client.info() == (INFO, LIMITS)


async def test_a_ragged_batch_and_an_output_recipe(server: tuple[Server, str]) -> None:
    async with TulipClient(server[1]) as client:
        batch = RaggedBatch.from_sequences([[9] * 4])
        embedding = await client.embed(batch, OutputSpec(dtype=OutputDtype.INT8))
    assert embedding.rows.dtype == np.int8
    assert embedding.rows.tolist() == [[4, 9]]


async def test_a_servers_error_is_raised_with_code_field_and_hint(
    server: tuple[Server, str],
) -> None:
    server[0].error = HotbedError(ErrorCode.OVERLOADED, "full", param="input[0]", retry_after_s=2.0)
    async with TulipClient(server[1]) as client:
        for call in (client.embed([[1]]), client.info()):
            with pytest.raises(HotbedError, match="full") as caught:
                await call
            assert caught.value.code is ErrorCode.OVERLOADED
            assert (caught.value.param, caught.value.retry_after_s) == ("input[0]", 2.0)
            assert isinstance(caught.value.__cause__, grpc.RpcError)


async def test_a_deadline_that_passes(server: tuple[Server, str]) -> None:
    server[0].hangs = True
    async with TulipClient(server[1]) as client:
        with pytest.raises(HotbedError) as caught:
            await client.embed([[1]], timeout_s=0.02)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED


async def test_no_server_there(tmp_path: Path) -> None:
    async with TulipClient(f"unix:{tmp_path / 'none'}") as client:
        with pytest.raises(HotbedError) as caught:
            await client.embed([[1]])
    assert caught.value.code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize("sequences", [[["text"]], [[2**31]], [[None]], [[[1]]], 5])
async def test_what_is_no_list_of_token_ids_is_refused_before_it_is_sent(
    server: tuple[Server, str], sequences: object
) -> None:
    async with TulipClient(server[1]) as client:
        with pytest.raises(HotbedError) as caught:
            await client.embed(sequences)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_INPUT
