"""The access log: a line of an answered request. Request text is in no line."""

from __future__ import annotations

import logging
import time

access_logger = logging.getLogger("hotbed.ivy.access")


def log_access(method: str, route: str, status: int, start: float, request_id: str) -> None:
    """One line of an answered request; `start` is `time.perf_counter()` at its arrival."""
    fields = {
        "request_id": request_id,
        "method": method,
        "route": route,
        "status": status,
        "ms": round((time.perf_counter() - start) * 1000, 3),
    }
    access_logger.info("%s", " ".join(map(str, fields.values())), extra={"fields": fields})
