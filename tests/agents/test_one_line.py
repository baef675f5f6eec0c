"""Three terminals of plain claude and one script on the OpenAI SDK, on one account: one pool, one fair line.

flyball starts none of the four. The provider serves as many calls at once as the pool's cap says, and refuses
every other (``one_line.py``).

With hooks a session is counted as long as it lives, also beyond the cap. So the reserve keeps a slot for each
terminal: the script and the subagents wait for the rest. What a hook is not told of cannot be counted, so the
call by which claude names its terminal is switched off there. Through the gateway every call is counted, that
one too, and nothing has to be kept free.
"""

from __future__ import annotations

from tests.agents.bench import Benches
from tests.agents.one_line import (
    PROJECTS,
    SEATS_THROUGH_GATEWAY,
    SEATS_WITH_HOOKS,
    check_end,
    overtakes,
    replay_through_gateway,
    replay_with_hooks,
)


def test_with_hooks_and_a_governed_client_all_stand_in_one_line(bench_of: Benches) -> None:
    replay = replay_with_hooks(bench_of(capacity=str(SEATS_WITH_HOOKS), counts="auto", paced=True))
    assert replay.in_line
    pools = [each["anthropic"] for each in replay.seen if "anthropic" in each]
    served = {lease["project"] for pool in pools for lease in pool["leases"] if lease["parent"]}
    assert served == set(PROJECTS)
    assert overtakes(replay.seen) == []
    check_end(replay)


def test_in_shells_that_lead_through_the_gateway_all_stand_in_one_line(bench_of: Benches) -> None:
    replay = replay_through_gateway(bench_of(capacity=str(SEATS_THROUGH_GATEWAY), counts="auto", paced=True))
    assert replay.together
    assert overtakes(replay.seen) == []
    check_end(replay)
