"""The default branch, as a landing sees it: where it stands, where work goes, and how it is moved.

It moves by one compare-and-swap, from the commit that everything before was built on to one that contains it.
Where landings are pushed, origin is asked first: it is the one that may say no. The user's checkout follows.
"""

from __future__ import annotations

from dataclasses import dataclass

from flyball.errors import GitError, invariant
from flyball.factory.checkout import UserCheckout
from flyball.factory.landed import Refused, Result
from flyball.factory.repository import Repository


class RuledOut(Refused):
    """Origin has a rule against these very commits; fewer of them may pass."""


@dataclass(frozen=True, slots=True)
class DefaultBranch:
    repository: Repository
    checkout: UserCheckout
    push: bool = False

    @property
    def name(self) -> str:
        return self.repository.default

    def fetched(self, notes: list[str], *, must: bool | None = None) -> tuple[str, str]:
        """Where it stands, and where the work goes: the same, or what origin has beyond it.

        ``must``: origin has to be reached; None: where landings are pushed.
        """
        if self.repository.has_origin:
            try:
                self.repository.fetch()
            except GitError as error:
                if self.push if must is None else must:
                    raise Refused(Result.NO_REMOTE, str(error)) from error
                words = f"could not fetch from origin ({error}); went on with what is here"
                if words not in notes:
                    notes.append(words)
        tips = self.repository.tips()
        base = self.repository.base_among(tips)
        return tips.local or base, base

    def prepare(self, *, old: str, new: str) -> None:
        """Before it moves."""
        forward = self.repository.contains(new, old)
        invariant(forward, f"{new} does not contain {old}: {self.name} would be rewritten")
        self.checkout.before_moving(old)

    def move(self, why: str, *, old: str, new: str, push: bool | None = None) -> bool:
        """False if it is no longer where it stood before the gate, here or at origin."""
        if (self.push if push is None else push) and not self._pushed(new):
            return False
        ref = f"refs/heads/{self.name}"
        return self.repository.git.run("update-ref", "-m", f"flyball: {why}", ref, new, old).ok

    def _pushed(self, new: str) -> bool:
        """False where origin has moved on; any other failure is Refused."""
        to = f"{new}:refs/heads/{self.name}"
        done = self.repository.git.run("push", "--quiet", "origin", to)
        if done.ok:
            return True
        # "[remote rejected]" is a rule of theirs: trying again cannot help.
        if "[rejected]" in done.err or "cannot lock ref" in done.err:
            return False
        kind = RuledOut if "[remote rejected]" in done.err else Refused
        raise kind(Result.NO_REMOTE, f"could not push to origin: {push_words(done.err)}", done.err)

    def follow(self) -> str:
        """Bring the checkout along. The branch has moved: what goes wrong from here on is told, and is no
        reason to say otherwise."""
        try:
            return self.checkout.follow()
        except (GitError, OSError) as error:
            return f"the checkout of {self.name} could not be brought along: {error}"


def push_words(said: str) -> str:
    lines = said.strip().splitlines() or ["it does not say why"]
    return next((line.strip(" !") for line in lines if "rejected]" in line), lines[-1])
