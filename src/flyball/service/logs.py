"""What the server says about itself: lines on stderr, plain or as JSON. No token or header is in them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def set_up(*, as_json: bool, access_log: bool) -> None:
    """For the whole process: errors of anybody, and what the service says; each request only if asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("flyball").setLevel(logging.INFO)
    logging.getLogger("flyball.access").setLevel(logging.INFO if access_log else logging.WARNING)
    # It warns of every request that is no HTTP: anybody could fill a disk with that.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
