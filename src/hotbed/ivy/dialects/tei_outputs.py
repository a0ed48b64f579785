"""TEI's /embed_all and /embed_sparse: a vector a token, and weights of token ids.

https://huggingface.github.io/text-embeddings-inference. As in TEI the vectors of /embed_all are the
model's final states, special tokens included, not normalised.
"""

from __future__ import annotations

import msgspec
import orjson

from hotbed.core.output import OutputKind, OutputSpec
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.dialects.tei import TeiError, TeiInputsBody, embed_request, tei_error_reply
from hotbed.ivy.encode import entry_lists, vector_lists
from hotbed.ivy.http import Reply
from hotbed.ivy.inputs import INPUT_FORMS
from hotbed.ivy.outputs import OutputsResult
from hotbed.ivy.routes import Route
from hotbed.ivy.work import Call


class TeiOutputBody(TeiInputsBody, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /embed_all and POST /embed_sparse."""


class SparseValue(msgspec.Struct, kw_only=True):
    """The weight of one token id."""

    index: int
    value: float


_read = BodyReader(TeiOutputBody, {"inputs": f"must be {INPUT_FORMS}"})


class TeiOutputRoutes(Handlers):
    """The routes' handlers."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/embed_all",
                aliases=("/v1/embed_all",),
                operation="teiEmbedAll",
                summary="A vector a token (TEI).",
                answer=self.embed_all,
                body=TeiOutputBody,
                reply=list[list[list[float]]],
                error_reply=tei_error_reply,
                error=TeiError,
            ),
            Route(
                path="/embed_sparse",
                aliases=("/v1/embed_sparse",),
                operation="teiEmbedSparse",
                summary="Weights of token ids, of models such as SPLADE and bge-m3 (TEI).",
                answer=self.embed_sparse,
                body=TeiOutputBody,
                reply=list[list[SparseValue]],
                error_reply=tei_error_reply,
                error=TeiError,
            ),
        ]

    async def embed_all(self, call: Call) -> Reply:
        result = await self._run(call, "tokens")
        body = orjson.dumps(await vector_lists(result.sets[0]))
        return finish(call, result, body, self._metrics)

    async def embed_sparse(self, call: Call) -> Reply:
        result = await self._run(call, "sparse")
        lists = await entry_lists(result.sets[0], "index", "value")
        body = orjson.dumps(lists, option=orjson.OPT_SERIALIZE_NUMPY)
        return finish(call, result, body, self._metrics)

    async def _run(self, call: Call, kind: OutputKind) -> OutputsResult:
        fields = _read(call.body)
        model = self._models.find(fields.model, task="embed")
        request = embed_request(
            fields,
            OutputSpec(kind=kind),
            max_inputs=self._settings.max_inputs,
            truncate=self._truncates(fields.truncate),
        )
        call.parsed(self._metrics)
        result = await model.pipeline.run_outputs(request, call.caller)
        call.computed()
        return result
