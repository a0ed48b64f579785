"""Errors name inputs by their place in the request, whatever part of it was looked at."""

from __future__ import annotations

import re

from hotbed.core.errors import HotbedError

# Replicas say "sequence 3" of the item they were given.
_PLACE = re.compile(r"input\[(\d+)\]|\bsequence (\d+)\b")


def shift_index(error: HotbedError, start: int) -> HotbedError:
    """The error with places counted from the request's first input.

    Args:
        error: names places in a part of the request, as ``input[3]`` or ``sequence 3``.
        start: index of the part's first input.
    """

    def shift(match: re.Match[str]) -> str:
        return f"input[{int(match[1] or match[2]) + start}]"

    param = None if error.param is None else _PLACE.sub(shift, error.param)
    return _with(error, _PLACE.sub(shift, error.message), param)


def name_bare_input(error: HotbedError) -> HotbedError:
    """The error with ``input`` for ``input[0]``: the client sent no list."""
    param = "input" if error.param == "input[0]" else error.param
    return _with(error, error.message.replace("input[0]", "input"), param)


def _with(error: HotbedError, message: str, param: str | None) -> HotbedError:
    return HotbedError(error.code, message, param=param, retry_after_s=error.retry_after_s)
