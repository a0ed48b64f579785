"""vLLM's HTTP server over a stub engine, for `bench.gateway_peers`; run with vLLM on the path.

Everything that vLLM's API server process does for a request is its own code: FastAPI and pydantic,
its renderer with the model's tokenizer, its serving classes, its writing of the answer. Only the
engine client is ours: it gives a ready row at once. So the way to the engine's process and back
(ZeroMQ, msgpack, output handling) is not in the figures, which favours vLLM.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.engine.protocol import EngineClient
from vllm.entrypoints.openai.api_server import build_and_serve
from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.outputs import PoolingOutput, PoolingRequestOutput
from vllm.renderers import renderer_from_config
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.input_processor import InputProcessor


class StubEngine(SimpleNamespace):
    """What the server asks of an engine client; rows of `dimensions` float32."""

    is_running, is_stopped, errored, dead_error = True, False, False, None

    async def encode(self, prompt: Any, pooling_params: Any, request_id: str, **_: Any) -> Any:
        row = PoolingOutput(self.row)
        yield PoolingRequestOutput(request_id, row, prompt["prompt_token_ids"], 0, True)

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("embed",)

    async def is_tracing_enabled(self) -> bool:
        return False

    async def check_health(self) -> None:
        return None

    async def do_log_stats(self) -> None:
        return None


async def main(model: str, port: str, dimensions: str) -> None:
    parser = make_arg_parser(FlexibleArgumentParser())
    args = parser.parse_args(
        [
            "--model", model, "--served-model-name", "fake", "--runner", "pooling", "--dtype",
            "float32", "--port", port, "--host", "127.0.0.1", "--disable-uvicorn-access-log",
        ]
    )  # fmt: skip
    validate_parsed_serve_args(args)
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config(
        UsageContext.OPENAI_API_SERVER
    )
    renderer = renderer_from_config(config)
    engine = StubEngine(
        vllm_config=config,
        model_config=config.model_config,
        renderer=renderer,
        input_processor=InputProcessor(config, renderer),
        row=torch.rand(int(dimensions)),
    )
    EngineClient.register(StubEngine)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(port)))
        await (await build_and_serve(engine, f"127.0.0.1:{port}", listener, args))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
