"""Small processes that hold, wait and ask. ``python -m tests.faults.people ROLE ARGUMENTS``.

hold NAME              take a slot, say ``held``, keep it until killed or told to stop by a closed stdin
wait NAME              wait for a slot, say ``got``, and end
crowd TASKS            ask TASKS times at once on one event loop, say how many were served
"""

from __future__ import annotations

import asyncio
import sys

import flyball

POOL = "anthropic"


def say(words: str) -> None:
    print(words, flush=True)


def hold(name: str) -> None:
    with flyball.slot(POOL, project="people", name=name):
        say("held")
        sys.stdin.read()


def wait(name: str) -> None:
    with flyball.slot(POOL, project="people", name=name, timeout=60):
        say("got")


async def crowd(tasks: int) -> None:
    gov = flyball.Governor()
    served = 0

    async def one() -> None:
        nonlocal served
        async with gov.slot(POOL, project="crowd", timeout=100):
            served += 1

    asking = [asyncio.ensure_future(one()) for _ in range(tasks)]
    say("asking")
    await asyncio.gather(*asking)
    say(str(served))


if __name__ == "__main__":
    role, argument = sys.argv[1:]
    if role == "crowd":
        asyncio.run(crowd(int(argument)))
    else:
        {"hold": hold, "wait": wait}[role](argument)
