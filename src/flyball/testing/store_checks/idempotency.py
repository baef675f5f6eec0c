"""Asks of remote clients: under a key, and with a time to live."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask
from flyball.core.pool.settings import KEY_TTL_S
from flyball.core.pool.verdict import Reason, Verdict
from flyball.stores.port import AfterCommit, Release
from flyball.testing.store_checks.scenario import POOL, Scene, expect, expect_equal, store_check

if TYPE_CHECKING:
    from typing import Unpack

    from flyball.testing.store_checks.scenario import AskWords

AFAR = Holder("afar", "", 0, 0, 0)
"""Whether this one lives cannot be told: it has no process."""


def _place(
    s: Scene,
    key: str = "",
    *,
    fingerprint: str = "f",
    ttl_s: float = 60.0,
    park: bool = False,
    mailbox: str = "",
    **rest: Unpack[AskWords],
) -> Verdict:
    return _admit(s, key, fingerprint=fingerprint, ttl_s=ttl_s, park=park, mailbox=mailbox, **rest)[0]


def _admit(
    s: Scene,
    key: str,
    *,
    fingerprint: str = "f",
    ttl_s: float = 60.0,
    park: bool,
    mailbox: str,
    **rest: Unpack[AskWords],
) -> tuple[Verdict, AfterCommit]:
    ask: Ask = s.ask(holder=AFAR, **{"name": "run", **rest})  # type: ignore[arg-type]
    asked = replace(ask, key=key, fingerprint=fingerprint, ttl_s=ttl_s, mailbox=mailbox)
    return s.store.admit(asked, park=park)


@store_check
def a_lease_from_afar_ends_with_its_time(s: Scene) -> None:
    s.static(1)
    expect(_place(s).granted, "the slot is free")
    expect_equal(_place(s).reason, Reason.CAP, "now it is not")
    s.wait(61.0)
    expect(_place(s).granted, "and an ask itself takes back what has ended")
    expect_equal(s.snapshot().in_use, 1, "slots in use")


@store_check
def a_lease_that_is_extended_goes_on(s: Scene) -> None:
    s.static(1)
    lease = _place(s).claim_id
    for _ in range(5):
        s.wait(50.0)
        expect(s.store.extend(lease, ttl_s=60.0), "it is still there")
    expect_equal(_place(s).reason, Reason.CAP, "and counts")
    s.wait(61.0)
    expect(not s.store.extend(lease, ttl_s=60.0), "too late")
    expect(_place(s).granted, "it is over")


@store_check
def looking_at_a_lease_from_afar_does_not_extend_it(s: Scene) -> None:
    s.static(1)
    lease = _place(s).claim_id
    s.wait(50.0)
    expect(s.poll(lease).granted, "it is held")
    s.wait(11.0)
    expect(_place(s).granted, "and over")


@store_check
def the_same_key_is_answered_as_the_first_time(s: Scene) -> None:
    s.static(3)
    first = _place(s, "k")
    again = _place(s, "k")
    expect_equal(
        (again.kind, again.claim_id, again.in_use, again.cap),
        (first.kind, first.claim_id, 1, 3),
        "said again",
    )
    expect((first.replayed, again.replayed) == (False, True), "and that it is said again")
    expect_equal(s.snapshot().in_use, 1, "slots in use")


@store_check
def a_key_outlives_its_lease(s: Scene) -> None:
    s.static(1)
    first = _place(s, "k")
    s.release(first.claim_id)
    expect_equal(_place(s, "k").claim_id, first.claim_id, "the run that was started once")
    expect_equal(s.snapshot().in_use, 0, "slots in use")
    s.wait(KEY_TTL_S + 1)
    expect(not _place(s, "k").replayed, "a day later it is forgotten")


@store_check
def a_key_is_good_for_one_request_only(s: Scene) -> None:
    s.static(3)
    _place(s, "k")
    verdict = _place(s, "k", fingerprint="another")
    expect_equal((verdict.granted, verdict.reason), (False, Reason.KEY_USED), "what it is told")
    expect_equal(s.snapshot().in_use, 1, "slots in use")


@store_check
def keys_belong_to_their_pool(s: Scene) -> None:
    s.static(1)
    s.static(1, "q")
    expect(_place(s, "k").granted and _place(s, "k", pool="q").granted, "one in each")


@store_check
def a_refusal_does_not_spoil_a_key(s: Scene) -> None:
    s.static(1)
    first = _place(s)
    expect_equal(_place(s, "k").reason, Reason.CAP, "full")
    s.release(first.claim_id)
    found = _place(s, "k")
    expect(found.granted and not found.replayed, "the next attempt is a new one")


@store_check
def an_ask_in_line_keeps_its_place_under_its_key(s: Scene) -> None:
    s.static(1)
    first = _place(s)
    ticket = _place(s, "k", park=True)
    expect_equal(_place(s, "k", park=True).claim_id, ticket.claim_id, "the same place")
    s.release(first.claim_id)
    expect(s.is_held(ticket.claim_id), "it is served")
    again = _place(s, "k", park=True)
    expect_equal((again.claim_id, again.granted), (ticket.claim_id, False), "what was said the first time")


@store_check
def an_ask_that_was_never_served_frees_its_key(s: Scene) -> None:
    s.static(1)
    first = _place(s)
    ticket = _place(s, "k", park=True)
    s.store.withdraw(ticket.claim_id)
    s.release(first.claim_id)
    found = _place(s, "k")
    expect(found.granted and not found.replayed, "it may be asked for again")


@store_check
def an_ask_that_became_too_large_frees_its_key(s: Scene) -> None:
    s.static(2)
    first = _place(s, slots=2)
    ticket = _place(s, "k", park=True, slots=2)
    s.store.set_pool(POOL, {"cap": 1})
    s.release(first.claim_id)
    expect(s.store.claim(ticket.claim_id) is None, "it left the line")
    expect(not _place(s, "k", park=True, slots=2).replayed, "nothing was said that could be said again")


@store_check
def an_ask_in_line_is_woken_where_it_was_asked_for_last(s: Scene) -> None:
    s.static(1)
    first = _place(s)
    ticket = _place(s, "k", park=True, mailbox="old")
    _, after = _admit(s, "k", park=True, mailbox="new")
    expect_equal([wake.mailbox for wake in after.wakes], ["old"], "told to look for itself from now on")
    after = s.store.release(Release(first.claim_id))
    expect_equal(
        [(wake.mailbox, wake.claim_id) for wake in after.wakes], [("new", ticket.claim_id)], "who is woken"
    )
    _, after = _admit(s, "k", park=True, mailbox="third")
    expect_equal((after.wakes, s.snapshot().in_use), ([], 1), "a lease stays as it is")


@store_check
def an_ask_in_line_that_is_repeated_has_its_time_anew(s: Scene) -> None:
    s.static(1)
    first = _place(s, ttl_s=600.0)
    ticket = _place(s, "k", park=True, ttl_s=30.0, mailbox="box")
    s.wait(20.0)
    _place(s, "k", park=True, ttl_s=30.0, mailbox="box")
    s.wait(20.0)
    s.store.reclaim([])
    s.release(first.claim_id)
    expect(s.is_held(ticket.claim_id), "it kept its place")


@store_check
def an_ask_in_line_that_nobody_asks_about_leaves_it(s: Scene) -> None:
    s.static(1)
    first = _place(s, ttl_s=600.0)
    gone = _place(s, park=True, ttl_s=30.0)
    patient = _place(s, park=True, ttl_s=600.0)
    s.wait(31.0)
    s.store.reclaim([])
    s.release(first.claim_id)
    expect(s.store.claim(gone.claim_id) is None, "it is gone")
    expect(s.is_held(patient.claim_id), "and the next is served")


@store_check
def a_note_is_kept_as_it_was_first(s: Scene) -> None:
    expect_equal(s.store.note("secret", "one"), "one", "nothing was there")
    expect_equal(s.store.note("secret", "two"), "one", "now something is")
    expect_equal(s.store.note("other", "three"), "three", "each under its name")


@store_check
def a_note_can_be_replaced_and_those_of_one_kind_are_found(s: Scene) -> None:
    s.store.set_note("terms:b/ü", "one")
    s.store.set_note("terms:a%", "two")
    s.store.set_note("other", "three")
    s.store.set_note("terms:b/ü", '{"again": 1}')
    expect_equal(s.store.notes("terms:"), {"terms:a%": "two", "terms:b/ü": '{"again": 1}'}, "found")
    expect_equal(s.store.notes("term_"), {}, "nothing begins so")
