"""How the process writes its log: lines for people, or a JSON object a line."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
access_logger = logging.getLogger("hotbed.ivy.access")
LogFormat = Literal["text", "json"]


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, message, and the record's own fields.

    Fields come from ``extra={"fields": {...}}``.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def set_format(log_format: LogFormat) -> None:
    """Give the root logger's handlers this form."""
    formatter = JsonFormatter() if log_format == "json" else logging.Formatter(TEXT_FORMAT)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)


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
