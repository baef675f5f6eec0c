"""What one machine counts by itself has no place in a store that many share: refused, with the way out."""

from __future__ import annotations

from flyball.core.model import Ask
from flyball.core.settings import MachineSettings
from flyball.errors import UsageError


def refuse_resources(ask: Ask) -> None:
    if ask.resources:
        raise UsageError(
            "resources are counted by one machine, and this state is on a server that many share; "
            "leave them out, or ask with a FLYBALL_URL of this machine"
        )


def refuse_machine(machine: MachineSettings) -> None:
    if machine != MachineSettings():
        raise UsageError(
            "limits over all pools of one machine have no place on a server that many machines share; "
            "give each pool a cap (flyball pool set POOL --cap N), or set them under a FLYBALL_URL of "
            "this machine"
        )
