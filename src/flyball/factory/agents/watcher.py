"""One agent while it runs: read what it prints, tell the pool of throttles, notice silence, keep ceilings.

The reading is the same whether we started the agent or found it again: its files are read from the beginning.
What an engine before us has already told the pool is not told twice.

    new output   -> reader -> signals to the pool at once, progress to the board
    too long, too many turns, too dear, silent for too long -> stopped, with the reason
    quiet for a while -> said once, nothing else: agents think
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from flyball.core.budget.usage_windows import UsageReport
from flyball.core.pool.verdict import span_words
from flyball.core.signals import End, Signal
from flyball.factory.agents.process import Process, ProcessWatch
from flyball.governor.launch.supervisor import STDERR, STDOUT
from flyball.host.atomic_file import replace_file
from flyball.host.growing_file import GrowingFile
from flyball.runtimes.port import Ending, Progress, Reader

_PIECES = 64
_BATCH_S = 0.03
"""Lines come in bursts: wait this long after the first, and read them together."""
_LOOK_EVERY_S = 0.5
"""Where the system does not tell that a file has grown."""
_SAVE_EVERY_S = 2.0
OUTPUT_LIMIT_BYTES = 4 << 30
PROGRESS = "progress.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    max_s: float | None = None
    max_s_key: str = "agent.max_s"
    """Where a person finds that."""
    max_turns: int | None = None
    max_cost_usd: float | None = None
    cost_key: str = "agent.max_cost_usd"
    """The key that set it."""
    silence_s: float | None = None
    stuck_s: float | None = None
    grace_s: float = 10.0


class AgentWatcher:
    """Follows one agent to its end."""

    def __init__(
        self,
        process: Process,
        reader: Reader,
        *,
        watch: ProcessWatch,
        ceilings: AgentLimits,
        tell: Callable[[Signal, Progress], None],
        session: Callable[[str], None] = lambda _: None,
        changed: Callable[[], None] = lambda: None,
        started: float,
        found_again: bool = False,
    ) -> None:
        self.process, self._reader, self._watch, self._ceilings = process, reader, watch, ceilings
        self._tell, self._session, self._changed = tell, session, changed
        self.started = started
        self._telling = not found_again
        self._news = asyncio.Event()
        self._stopped_for: tuple[End, str] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self.active_at = started
        self.stuck = False
        self._saved_at = 0.0
        self._ended = False
        self._known_session: str | None = None
        self._known_money: tuple[float | None, tuple[UsageReport, ...]] = (None, ())
        self._files = {name: GrowingFile.open(process.folder / name) for name in (STDOUT, STDERR)}

    @property
    def progress(self) -> Progress:
        return self._reader.progress()

    def stop(self, why: str, *, end: End = End.KILLED) -> None:
        """Have it end; ``follow`` then returns with this reason."""
        if self._stopping is None:
            self._stopped_for = (end, why)
            grace_s = self._ceilings.grace_s
            self._stopping = asyncio.ensure_future(self.process.stop(self._watch, grace_s=grace_s))

    async def follow(self) -> Ending:
        """Read until it is gone; how it ended."""
        over = asyncio.ensure_future(self.process.over(self._watch))
        over.add_done_callback(self._note_end)
        told = [self._watch.tell(self.process.folder / name, self._news.set) for name in self._files]
        try:
            while not over.done():
                if await self._read():
                    self._news.set()
                self._keep_ceilings()
                await self._sleep(notified=all(told))
            while await self._read():
                pass
            ending = self._reader.finish(over.result(), wall_s=time.time())
            if self._stopped_for is not None:
                end, why = self._stopped_for
                ending = replace(ending, end=end, reason=why, signal=None)
            return ending
        finally:
            over.cancel()
            for name, file in self._files.items():
                self._watch.forget(self.process.folder / name)
                file.close()
            if self._stopping is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await self._stopping
            self._save()

    async def _sleep(self, *, notified: bool) -> None:
        timeout_s = self._next_look_s() if notified else min(_LOOK_EVERY_S, self._next_look_s())
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
            if not self._ended:
                await asyncio.sleep(_BATCH_S)
        except TimeoutError:
            pass
        self._news.clear()

    def _note_end(self, _: object) -> None:
        self._ended = True
        self._news.set()

    async def _read(self) -> bool:
        """What is there now, letting the others run between two pieces; True if there is more.

        An agent may print faster than we read: its ceilings are looked at all the same.
        """
        feeds, more = {STDOUT: self._reader.feed, STDERR: self._reader.feed_stderr}, False
        for name, file in self._files.items():
            for _ in range(_PIECES):
                piece = file.read()
                if not piece:
                    break
                now = time.time()
                self.active_at, self.stuck = now, False
                signals = feeds[name](piece, wall_s=now)
                for signal in signals if self._telling else ():
                    self._tell(signal, self.progress)
                await asyncio.sleep(0)
            else:
                more = True
        self._telling = self._telling or not more
        progress = self.progress
        session, money = progress.session, (progress.cost_usd, progress.windows)
        if session is not None and session != self._known_session:
            self._known_session = session
            self._session(session)
        if money != self._known_money:
            # At once: it may be a reason to stop others.
            self._known_money = money
            self._changed()
        if time.monotonic() - self._saved_at >= _SAVE_EVERY_S:
            self._save()
        return more

    def _save(self) -> None:
        """For other processes to show; a disk that cannot take it loses nothing that counts."""
        self._saved_at = time.monotonic()
        progress = self.progress
        record = {
            "activity": progress.activity,
            "active_at": self.active_at,
            "session": progress.session,
            "model": progress.model,
            "tokens": progress.tokens.total if progress.tokens else None,
            "cost_usd": progress.cost_usd,
            "stuck": self.stuck,
        }
        with contextlib.suppress(OSError):
            replace_file(self.process.folder / PROGRESS, json.dumps(record).encode(), durable=False)
        self._changed()

    # -- ceilings -------------------------------------------------------------------------------------

    def _keep_ceilings(self) -> None:
        why = self._over_a_ceiling()
        if why:
            self.stop(why, end=End.FAILED)
        quiet_s = time.time() - self.active_at
        stuck_s = self._ceilings.stuck_s
        if stuck_s and quiet_s >= stuck_s and not self.stuck:
            self.stuck = True
            self._save()

    def _over_a_ceiling(self) -> str:
        limits, progress, now = self._ceilings, self.progress, time.time()
        if limits.max_s and now - self.started >= limits.max_s:
            return f"it ran longer than {limits.max_s_key} allows ({span_words(limits.max_s)})"
        if limits.silence_s and now - self.active_at >= limits.silence_s:
            return f"it printed nothing for {span_words(limits.silence_s)} (agent.silence_s)"
        if limits.max_turns and (progress.turns or 0) > limits.max_turns:
            return f"it took more turns than agent.max_turns allows ({limits.max_turns})"
        if limits.max_cost_usd and (progress.cost_usd or 0.0) > limits.max_cost_usd:
            return f"it cost more than {limits.cost_key} allows (${limits.max_cost_usd:g})"
        if sum(file.at for file in self._files.values()) > OUTPUT_LIMIT_BYTES:
            return f"it printed more than {OUTPUT_LIMIT_BYTES >> 30} GB"
        return ""

    def _next_look_s(self) -> float:
        """When a ceiling could be reached by the passing of time alone."""
        limits, now = self._ceilings, time.time()
        due = [60.0]
        if limits.max_s:
            due.append(self.started + limits.max_s - now)
        if limits.silence_s:
            due.append(self.active_at + limits.silence_s - now)
        if limits.stuck_s and not self.stuck:
            due.append(self.active_at + limits.stuck_s - now)
        if self._stopping is not None:
            due.append(1.0)
        return max(0.05, min(due))
