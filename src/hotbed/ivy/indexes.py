"""Errors name inputs as the client wrote them."""

from __future__ import annotations

from hotbed.core.errors import HotbedError


def name_bare_input(error: HotbedError) -> HotbedError:
    """The error with ``input`` for ``input[0]``: the client sent no list."""
    return HotbedError(
        error.code,
        error.message.replace("input[0]", "input"),
        param="input" if error.param == "input[0]" else error.param,
        retry_after_s=error.retry_after_s,
    )
