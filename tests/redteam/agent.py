"""A hostile agent's process: ``python3 -I -S agent.py FOLDER``. Which of the programs it is, its task says.

What came in the program's way is written beside its marks, for the harness to read.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.redteam.hostile import Agent


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    facts = json.loads((folder / "facts.json").read_text())
    task = os.environ["FLYBALL_TASK"]
    if task not in facts["tasks"]:
        _honest(facts, task)
    elif len(facts["tasks"][task]) == 1:
        _try(facts, facts["tasks"][task][0])
    else:
        bare = {"PATH": os.defpath, "HOME": "/"}
        start = subprocess.check_output(["git", "rev-parse", "HEAD"], env=bare, text=True).strip()
        for name in facts["tasks"][task]:
            pid = os.fork()
            if pid == 0:
                _try(facts, name)
                os._exit(0)
            os.waitpid(pid, 0)
            # The next one begins where this one did, and nothing is left in the end.
            if os.path.lexists("pages"):
                subprocess.run(["git", "reset", "--quiet", "--hard", start], env=bare)
                subprocess.run(["git", "clean", "-ffdq"], env=bare)


def _try(facts: Any, name: str) -> None:
    from tests.redteam.hostile import INSIDE, PROGRAMS, Agent, RefusedError

    os.environ[INSIDE] = name
    importlib.import_module(facts["modules"][name])
    me = Agent(name=name, attempt=int(os.environ["FLYBALL_ATTEMPT"]), facts=facts)
    met, where = "", ""
    try:
        PROGRAMS[name].act(me)
    except OSError as error:
        met, where = errno.errorcode.get(error.errno or 0, "OSError"), str(error)
    except RefusedError as refused:
        met = str(refused)
    except SystemExit:
        _report(me, met, where)
        raise
    except BaseException:
        met, where = "broken", traceback.format_exc()
    _report(me, met, where)


def _report(me: Agent, met: str, where: str) -> None:
    path = me.at("marks") / f"{me.name}.report"
    fresh = path.with_suffix(f".{me.attempt}")
    fresh.write_text(json.dumps({"met": met, "where": where}))
    fresh.rename(path)


def _honest(facts: Any, task: str) -> None:
    """A task that is not hostile itself: the neighbour, and those that come later."""
    from tests.redteam.hostile import Agent

    me = Agent(name=task, attempt=1, facts=facts)
    if task == "neighbour":
        print(facts["neighbours_words"], flush=True)
        me.write(".env", facts["neighbours_secret"])
        me.write("pages/neighbour.txt", "of the neighbour\n")
        (me.at("marks") / "neighbour.up").touch()
        me.wait_for(me.at("marks") / "over", limit_s=240)
    else:
        me.bad_page()


if __name__ == "__main__":
    main()
