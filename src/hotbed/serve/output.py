"""Where the children's lines and the supervisor's remarks go."""

from __future__ import annotations

import json
import signal
import sys

from hotbed.core.log_format import LogFormat


class OutputLog:
    """Writes ``name | line`` to standard error, at once; or JSON with the name in ``process``.

    When nobody reads it any more, the service is asked to stop, as by a terminal that hangs up;
    what is said after that is dropped, so that children never block on a full pipe.
    """

    def __init__(self, log_format: LogFormat = "text") -> None:
        self._is_broken = False
        self._is_json = log_format == "json"

    def write_line(self, name: str, line: str) -> None:
        """One line of whoever `name` is."""
        if self._is_broken:
            return
        try:
            sys.stderr.write(self._shown(name, line))
            sys.stderr.flush()
        except BrokenPipeError:
            self._is_broken = True
            signal.raise_signal(signal.SIGHUP)
        except OSError:
            return  # a full disk, say: a line is lost, and the service goes on

    def _shown(self, name: str, line: str) -> str:
        if not self._is_json:
            return f"{name} | {line}\n"
        if line.startswith('{"') and line.endswith("}"):  # a child's own record
            return f'{{"process": "{name}", {line[1:]}\n'
        # What no logger wrote: a library's remark, a traceback, the supervisor's own words.
        return json.dumps({"process": name, "message": line}, ensure_ascii=False) + "\n"
