"""Errors name fields and inputs as the client wrote them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hotbed.core.errors import HotbedError


def name_fields(
    error: HotbedError, names: Mapping[str, str], *, is_single: bool = False
) -> HotbedError:
    """The error in the words of the client's dialect.

    Args:
        error: names inputs as ``input`` and ``input[i]``, and fields as the internal request does.
        names: the dialect's names of those that differ.
        is_single: the client sent one bare input, so ``input[0]`` is ``input``.
    """
    message, param = error.message, error.param
    if is_single:
        message = message.replace("input[0]", "input")
        param = None if param is None else param.replace("input[0]", "input", 1)
    if names:
        pattern = re.compile(rf"\b({'|'.join(names)})\b")
        message = pattern.sub(lambda match: names[match[0]], message)
        param = None if param is None else pattern.sub(lambda match: names[match[0]], param)
    return HotbedError(error.code, message, param=param, retry_after_s=error.retry_after_s)
