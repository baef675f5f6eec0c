"""``flyball exec`` around an agent it knows: read what it prints, say why it ended, try again when asked.

    acquire -> run, reading -> report throttles while it runs -> judge the ending -> release
       ^                                                              |
       +---- wait out the limit, resume the session  <----------------+  limited, and tries are left

In a terminal an agent that runs one prompt to its end is read the same way, and neither it nor the person
sees a difference. An interactive one is left untouched: nothing is read, and the exit status is all there is
to judge by. Output that cannot be kept in files is passed through the same way. A run that is not read is not
evidence for a higher cap, and one line says that it is not read.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flyball.cli.ui.endings import ending_record, ending_words
from flyball.core.pool.model import Outcome
from flyball.core.pool.verdict import span_words
from flyball.core.signals import End, Signal, SignalKind
from flyball.errors import StoreError
from flyball.governor import inherited_lease
from flyball.governor.internals import internals, thread_mail
from flyball.governor.launch.gated_child import GatedChild, die_like, passing_on, stopped_by_signals
from flyball.governor.launch.output_files import (
    ERR,
    OUT,
    OutputFolder,
    follow,
    readable_descriptors,
    sweep,
)
from flyball.governor.lease import note_answer
from flyball.governor.state_url import mail_home
from flyball.host import exit_status
from flyball.host.clock import boot_seconds
from flyball.host.process import identify
from flyball.runtimes.launch_arguments import with_options
from flyball.runtimes.outcome import outcome_of, report_ending, report_signal
from flyball.runtimes.port import Ending, Reader, Runtime
from flyball.runtimes.registry import tells_refusals
from flyball.runtimes.terminal_text import TerminalReader

if TYPE_CHECKING:
    from flyball.cli.shared.usage_windows import WindowWatch
    from flyball.gateway.agent_route import LaunchChange
    from flyball.gateway.lifetime import GatewayConnection
    from flyball.governor.governor import Governor
    from flyball.governor.lease import Lease

BACKOFF_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    governor: Governor
    load: Callable[[], Runtime]
    """Called when its reader is needed, not before."""
    acquire: Callable[[], Lease]
    rest: Callable[[float, str], Lease]
    """Show that it waits out a limit, for so long and why, until the lease of no slots is released."""
    let_run: Callable[[Lease, GatedChild], None]
    """Bind the lease to the child and open its gate."""
    runtime: str
    read: bool
    """Its output can be read; else its exit status is all that is known."""
    headless: bool
    """It runs one prompt to its end, and does not talk to a person."""
    retries: int = 0
    quiet: bool = False
    as_json: bool = False
    change: LaunchChange | None = None
    """Leads its calls through the gateway, which tells the pool what the provider says."""
    gateway_connection: GatewayConnection | None = None
    windows: WindowWatch | None = None
    """Hears what the agent says about its account's usage windows."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What bounds its subagents."""

    def until_done(self, argv: list[str]) -> int:
        """Run it, again as often as asked while it ends limited; the exit code."""
        stdin_at, tries = _stdin_position(), 0
        if self.change is not None:
            argv = with_options(argv, self.change.options)
        elif not self.read:
            self._say_unread()
        while True:
            tries += 1
            ending, status = self._once(argv)
            wait_s = retry_wait_s(ending, tries) if tries <= self.retries else None
            if self.windows is not None:
                self.windows.hear(ending.progress.windows)
                self.windows.warn()
            if wait_s is None:
                self._say(ending, given_up(ending) if tries <= self.retries else "")
                thread_mail.close()  # death by a signal runs nothing that would sweep up behind us
                return exit_status.LIMITED if ending.end is End.LIMITED else die_like(status)
            with stopped_by_signals():
                how = "" if ending.progress.session is not None else ", from the start"
                again = f"; trying again in {span_words(wait_s)}{how} ({tries} of {self.retries})"
                with self._show_rest(wait_s, ending_words(ending) + again):
                    self._say(ending, again)
                    _wait(wait_s)
            _rewind_stdin(stdin_at)
            if ending.progress.session is not None:
                argv = self.load().resuming(argv, ending.progress.session)

    def _once(self, argv: list[str]) -> tuple[Ending, int]:
        lease = self.acquire()
        folder = self._folder()
        child = self._start(lease, argv, folder)
        with passing_on(child.pid):
            self._let_run(lease, child, folder)
            if self.gateway_connection is not None:
                self.gateway_connection.watch()
            if self.windows is not None:
                self.windows.warn()
            # From here on an error of ours leaves the lease to the child, and its output in the folder.
            with child.followed():
                # What reads the output is loaded beside the child: the output waits in the folder's files.
                reader: Reader = self.load().reader()
                if folder is None:
                    status = child.wait()
                else:
                    events = tells_refusals(argv, self.runtime)
                    reader = TerminalReader(reader, mixed=folder.mixed, events=events)
                    feeds = {OUT: reader.feed, ERR: reader.feed_stderr}
                    looks = {name: self._look(lease, reader, feed) for name, feed in feeds.items()}
                    status = follow(child, folder.tails(looks))
                    if os.WIFSIGNALED(status):
                        folder.restore_terminal()
                    folder.remove()
        ending = reader.finish(os.waitstatus_to_exitcode(status), wall_s=time.time())
        if self.change is None:
            outcome = report_ending(lease, ending, read=folder is not None, note_answer=note_answer)
        else:
            outcome = outcome_of(ending.end)
        lease.release(outcome, words=ending_words(ending))
        return ending, status

    def _show_rest(self, wait_s: float, why: str) -> AbstractContextManager[object]:
        """Status shows it meanwhile; a state that cannot be written does not stop the retry."""
        try:
            return self.rest(wait_s, why)
        except StoreError:
            return nullcontext()

    def _start(self, lease: Lease, argv: list[str], folder: OutputFolder | None) -> GatedChild:
        env = {
            **os.environ,
            **self.variables,
            **(self.change.variables if self.change is not None else {}),
            inherited_lease.VARIABLE: internals(self.governor).variable_value(lease),
        }
        sys.stdout.flush()
        return GatedChild(argv, env, redirect=folder.redirect if folder else None)

    def _let_run(self, lease: Lease, child: GatedChild, folder: OutputFolder | None) -> None:
        try:
            if folder is not None:
                folder.belongs_to(identify(child.pid))
            self.let_run(lease, child)
        except BaseException:
            if folder is not None:
                folder.remove()
            lease.release(Outcome.ABANDONED)
            raise

    def _folder(self) -> OutputFolder | None:
        if not self.read:
            return None
        home = mail_home(self.governor.address)
        sweep(home)
        try:
            return OutputFolder(home, readable_descriptors(headless=self.headless))
        except OSError:
            return None

    def _look(
        self, lease: Lease, reader: Reader, feed: Callable[..., list[Signal]]
    ) -> Callable[[bytes], None]:
        def look(piece: bytes) -> None:
            for signal in feed(piece, wall_s=time.time()):
                if self.change is not None:
                    continue
                report_signal(lease, signal, reader.progress(), note_answer=note_answer)
            if self.windows is not None and b"rate_limit" in piece:
                self.windows.hear(reader.progress().windows)

        return look

    def _say_unread(self) -> None:
        if self.quiet:
            return
        what = (
            f"the output of {self.runtime} cannot be read here"
            if self.headless
            else f"an interactive {self.runtime} is not read"
        )
        retried = " and not retried" if self.retries else ""
        words = f"{what}: it holds its slot while it lives, and a limit that it meets is not heard{retried}"
        said = json.dumps({"read": False, "words": words}) if self.as_json else f"flyball: {words}"
        with suppress(OSError):
            print(said, file=sys.stderr, flush=True)

    def _say(self, ending: Ending, more: str = "") -> None:
        unread = ending.progress.active_at is None
        if self.quiet or ending.end is End.FINISHED or (unread and ending.end is not End.LIMITED):
            return
        session = ending.progress.session
        words = ending_words(ending) + (f"; session {session}" if session else "") + more
        if self.as_json:
            record = ending_record(ending)
            words = json.dumps({"ending": record.pop("verdict"), "words": words, **record})
        else:
            words = f"flyball: {words}"
        with suppress(OSError):
            print(words, file=sys.stderr, flush=True)


def retry_wait_s(ending: Ending, tries: int) -> float | None:
    """How long to wait before trying again; None: do not.

    Spent credit is a person's turn; a used-up window is worth waiting for only where its reset is known.
    """
    signal = ending.signal
    if ending.end is not End.LIMITED or signal is None or signal.kind is SignalKind.CREDIT_GONE:
        return None
    if signal.retry_after_s is None and signal.kind is SignalKind.WINDOW_USED_UP:
        return None
    return signal.retry_after_s if signal.retry_after_s is not None else BACKOFF_S * tries


def given_up(ending: Ending) -> str:
    """Why a limited run is not tried again although that was asked for."""
    if ending.end is not End.LIMITED or ending.signal is None:
        return ""
    credit = ending.signal.kind is SignalKind.CREDIT_GONE
    why = "only a person can change that" if credit else "it does not say when that is over"
    return f"; not tried again: {why}"


def _wait(seconds: float) -> None:
    """Sleep, the time of a sleeping machine counted."""
    end = boot_seconds() + seconds
    while (left_s := end - boot_seconds()) > 0:
        time.sleep(min(left_s, 30.0))


def _stdin_position() -> int | None:
    try:
        return os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        return None


def _rewind_stdin(position: int | None) -> None:
    """A prompt in a file is there again; one from a pipe was read and is in the session."""
    if position is not None:
        with suppress(OSError):
            os.lseek(0, position, os.SEEK_SET)
