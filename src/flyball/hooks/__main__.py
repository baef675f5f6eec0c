"""What an agent calls: ``python -P -m flyball.hooks RUNTIME EVENT WAIT_S``, the event's payload on stdin.

Prints what denies a subagent, or nothing; exits 0 whatever happens. ``FLYBALL_HOOKS=off`` switches it off.
An event that changes nothing costs the start of Python and no more.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_MOST_BYTES = 64 * 1024 * 1024
_LOG_BYTES = 256 * 1024


def main() -> NoReturn:
    try:
        said = _answer(*sys.argv[1:4])
        if said:
            sys.stdout.write(said + "\n")
            sys.stdout.flush()
    except Exception as error:
        _log(error)
    # Nothing that ends a process is left to fail: an agent would show it to its person.
    os._exit(0)


def _answer(runtime_name: str, event_name: str, wait_s: str = "0") -> str:
    if os.environ.get("FLYBALL_HOOKS") == "off":
        return ""
    import gc
    import json

    # What is loaded here is never garbage, and looking for it would cost a tenth of the time.
    gc.disable()
    from flyball.host.delayed_module import delay_rarely_used

    delay_rarely_used()
    from flyball.hooks.registry import load_hooks

    runtime = load_hooks(runtime_name)
    payload = json.loads(sys.stdin.buffer.read(_MOST_BYTES))
    event = runtime.parse_event(event_name, payload) if isinstance(payload, dict) else None
    if event is None:
        return ""
    from flyball.hooks.sensor import Sensor

    pid = payload.get("flyball_pid")
    sensor = Sensor(
        runtime_name,
        pid if isinstance(pid, int) else os.getppid(),
        calls_counted=os.environ.get("FLYBALL_GATEWAY") == "1",
    )
    refused = sensor.handle(event, wait_s=float(wait_s))
    return runtime.denial(event_name, refused) if refused is not None else ""


def _log(error: Exception) -> None:
    """One line; where even that cannot be written the agent still goes on."""
    try:
        import time

        from flyball.host.state_folder import home

        folder = home() / "hooks"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "log"
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.replace(folder / "log.1")
        words = " ".join(str(error).split())[:500]
        line = f"{time.strftime('%F %T')} {' '.join(sys.argv[1:3])}: {type(error).__name__}: {words}\n"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
            file.write(line)
    except Exception:
        return


if __name__ == "__main__":
    main()
