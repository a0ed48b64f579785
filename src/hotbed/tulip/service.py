"""The gRPC service `hotbed.tulip.v1.Tulip` over a step loop."""

from __future__ import annotations

import asyncio

import grpc

from hotbed import __version__
from hotbed.core.errors import HotbedError
from hotbed.tulip import faults
from hotbed.tulip.door import admit, hand_out, tenant_of
from hotbed.tulip.loop import StepLoop
from hotbed.tulip.register import unreadable
from hotbed.tulip.stream import Connection, Stream
from hotbed.tulip.work import Answer
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire import tulip_pb2_grpc as pb_grpc
from hotbed.wire.codec import encode_info
from hotbed.wire.errors import abort

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Tulip"].full_name


class TulipService(pb_grpc.TulipServicer):
    """Answers UNAVAILABLE until it is given a step loop.

    Args:
        local_stream: say that streams are taken without gRPC too.
    """

    def __init__(self, *, local_stream: bool = False) -> None:
        self._local_stream = local_stream
        self._steps: StepLoop | None = None
        self._streams: set[Stream] = set()
        self.num_calls = 0
        """Calls that came so far."""

    @property
    def num_unsent_bytes(self) -> int:
        """Of answers that streams' clients have not read yet. May be asked from any thread."""
        return sum(stream.num_unsent_bytes for stream in tuple(self._streams))

    def attach(self, steps: StepLoop) -> None:
        """From now on items go to this loop."""
        self._steps = steps

    def end_streams(self) -> None:
        """Let every open stream finish what it has in flight and then end."""
        for stream in self._streams:
            stream.end()

    async def Stream(  # noqa: N802
        self,
        request_iterator: object,
        context: grpc.aio.ServicerContext[pb.StreamRequest, pb.StreamReply],
    ) -> None:
        """The main way: see the proto. An item that fails is answered by itself."""
        try:
            await self.serve_stream(context)
        except HotbedError as error:
            await abort(context, error)

    async def serve_stream(self, connection: Connection) -> None:
        """The same, whatever carries the messages.

        Raises:
            HotbedError: UNAVAILABLE while there is no step loop; and as `Stream.run`.
            ConnectionError: as `Stream.run`.
        """
        self.num_calls += 1
        steps = self._steps
        if steps is None:
            raise faults.unavailable("loading")
        stream = Stream(connection, steps)
        self._streams.add(stream)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)

    async def Embed(  # noqa: N802
        self,
        request: pb.EmbedRequest | None,
        context: grpc.aio.ServicerContext[pb.EmbedRequest, pb.EmbedReply],
    ) -> pb.EmbedReply:
        """One item; the call's deadline and cancellation reach the queue."""
        self.num_calls += 1
        reply = pb.EmbedReply()
        try:
            if request is None:
                raise unreadable("EmbedRequest")
            if self._steps is None:
                raise faults.unavailable("loading")
            metadata = dict(context.invocation_metadata() or ())
            answer = await self._embed(
                self._steps,
                request,
                context.time_remaining(),
                context.peer(),
                str(metadata.get("traceparent", "")),
            )
            hand_out(answer, self._steps.info.fingerprint, into=reply.rows)
        except HotbedError as error:
            await abort(context, error)
        return reply

    async def Info(  # noqa: N802
        self,
        request: pb.InfoRequest,
        context: grpc.aio.ServicerContext[pb.InfoRequest, pb.InfoReply],
    ) -> pb.InfoReply:
        """Model and limits."""
        self.num_calls += 1
        if self._steps is None:
            await abort(context, faults.unavailable("loading"))
        reply = encode_info(self._steps.info, self._steps.limits, __version__)
        reply.local_stream = self._local_stream
        return reply

    async def Stats(  # noqa: N802
        self,
        request: pb.StatsRequest,
        context: grpc.aio.ServicerContext[pb.StatsRequest, pb.StatsReply],
    ) -> pb.StatsReply:
        """Load and totals."""
        self.num_calls += 1
        steps = self._steps
        if steps is None:
            await abort(context, faults.unavailable("loading"))
        totals = steps.step_totals
        return pb.StatsReply(
            waiting_tokens=steps.num_waiting_tokens,
            open_items=steps.num_open_items,
            steps=totals.steps,
            step_sequences=totals.sequences,
            step_tokens=totals.tokens,
            step_seconds=totals.seconds,
            failed_steps=totals.failed,
            engine=steps.engine_counters(),
        )

    @staticmethod
    async def _embed(
        steps: StepLoop,
        request: pb.EmbedRequest,
        timeout_s: float | None,
        peer: str,
        traceparent: str,
    ) -> Answer:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def on_answer(answer: Answer) -> None:
            if not answered.cancelled():
                answered.set_result(answer)

        try:
            batch, spec = admit(request.batch, request.output, steps.info)
            item = steps.submit(
                batch,
                spec,
                on_answer=on_answer,
                timeout_s=timeout_s,
                client=tenant_of(request.tenant) or peer,
                traceparent=traceparent,
            )
        except HotbedError as error:
            steps.count_refusal(error)
            raise
        try:
            return await answered
        finally:
            if not item.is_answered:  # the client is gone or its deadline has passed
                steps.cancel(item)
