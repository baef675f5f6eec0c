"""A hostile agent's process: ``python3 -I -S agent.py FOLDER``. Which of the programs it is, its task says.

What came in the program's way is written beside its marks, for the harness to read.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import sys
import traceback
from pathlib import Path


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    from tests.redteam.hostile import INSIDE, PROGRAMS, Agent, RefusedError

    facts = json.loads((folder / "facts.json").read_text())
    task = os.environ["FLYBALL_TASK"]
    me = Agent(name=task, attempt=int(os.environ["FLYBALL_ATTEMPT"]), facts=facts)
    report = me.at("marks") / f"{task}.report"
    if task not in facts["modules"]:
        _honest(me, task)
        return
    os.environ[INSIDE] = task
    importlib.import_module(facts["modules"][task])
    met, broken = "", ""
    try:
        PROGRAMS[task].act(me)
    except OSError as error:
        met = errno.errorcode.get(error.errno or 0, "OSError")
        broken = f"{error} in {traceback.extract_tb(error.__traceback__)[-1].line}"
    except RefusedError as refused:
        met = str(refused)
    except SystemExit:
        _report(report, met, broken, me.attempt)
        raise
    except BaseException:
        met, broken = "broken", traceback.format_exc()
    _report(report, met, broken, me.attempt)


def _report(path: Path, met: str, broken: str, attempt: int) -> None:
    fresh = path.with_suffix(f".{attempt}")
    fresh.write_text(json.dumps({"met": met, "where": broken}))
    fresh.rename(path)


def _honest(me: object, task: str) -> None:
    """A task that is not hostile itself: the neighbour, and those that come later."""
    from tests.redteam.hostile import Agent

    assert isinstance(me, Agent)
    if task == "neighbour":
        me.write("pages/neighbour.txt", "of the neighbour\n")
        me.write(".env", me.facts["neighbours_secret"])
        (me.at("marks") / "neighbour.up").write_text(json.dumps([os.getpid(), str(me.tree)]))
        me.wait_for(me.at("marks") / "over", limit_s=120)
    else:
        me.bad_page()


if __name__ == "__main__":
    main()
