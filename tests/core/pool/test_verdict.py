"""The answer in words, and when to come back."""

from __future__ import annotations

from flyball.core.pool.verdict import Blocker, Reason, Verdict, VerdictKind, span_words
from tests.cases import every


def _verdict(reason: Reason, kind: VerdictKind = VerdictKind.REFUSED, **fields: object) -> Verdict:
    return Verdict(kind=kind, reason=reason, pool="anthropic", in_use=6, cap=6, **fields)  # type: ignore[arg-type]


def test_a_waiting_verdict_says_what_why_when_and_who() -> None:
    blocker = Blocker("blog", "t-14", 4121, "box", 60)
    verdict = _verdict(
        Reason.CAP, VerdictKind.PARKED, reserved=2, estimate_s=170.0, blocker=blocker, position=3
    )
    assert verdict.words() == (
        "waiting: anthropic 6 of 6 in use, 2 reserved, place 3 in line, next slot ~3 min; "
        "the longest is blog/t-14, 60 s"
    )


def test_what_is_in_the_way_can_be_told_without_the_pool_and_the_place() -> None:
    verdict = _verdict(Reason.QUEUE, VerdictKind.PARKED, estimate_s=170.0, position=3)
    assert verdict.why() == "6 of 6 in use, others are first, place 3 in line, next slot ~3 min"
    assert verdict.why(place=False, estimate=False) == "6 of 6 in use, others are first"


def test_a_grant_needs_few_words() -> None:
    assert _verdict(Reason.FREE, VerdictKind.GRANTED).words() == "granted: anthropic 6/6"


def test_a_trial_and_a_user_of_a_resource_are_called_what_they_are() -> None:
    blocker = Blocker("blog", "t-14", 4121, "box", 240)
    trial, resource = (_verdict(reason, blocker=blocker) for reason in (Reason.TRIAL, Reason.RESOURCE))
    assert trial.words().endswith("; the trial is blog/t-14, 4 min")
    assert resource.words().endswith("; used by blog/t-14, 4 min")


def test_where_all_last_longer_than_usual_no_time_is_promised() -> None:
    words = _verdict(Reason.CAP, usual_s=9.0).words()
    assert words == "refused: anthropic 6 of 6 in use, longer than usual (9 s), no estimate"


@every("reason", [r for r in Reason if r not in (Reason.FREE, Reason.CAP)])
def test_every_reason_has_words_of_its_own(reason: Reason) -> None:
    assert len(_verdict(reason).words()) > len(_verdict(Reason.CAP).words())


def test_a_detail_replaces_the_general_phrase() -> None:
    assert (
        "'a' uses 2 of its fair share 2"
        in _verdict(Reason.SHARE, detail="'a' uses 2 of its fair share 2").words()
    )


@every("reason", Reason)
def test_the_first_in_line_is_not_told_its_place(reason: Reason) -> None:
    assert "place" not in _verdict(reason, position=1).words()


@every(
    "reason, estimate_s, look_again_s, retry_after_s",
    [
        (Reason.CAP, 12.0, 60.0, 12.0),
        (Reason.CAP, None, 60.0, None),
        (Reason.SPACING, None, 2.0, 2.0),
        (Reason.SHARE, None, 40.0, 40.0),
        (Reason.BREAKER, 300.0, 300.0, 300.0),
        (Reason.TOO_LARGE, None, 60.0, None),
    ],
)
def test_when_to_come_back_is_only_said_where_it_is_known(
    reason: Reason, estimate_s: float | None, look_again_s: float, retry_after_s: float | None
) -> None:
    verdict = _verdict(reason, estimate_s=estimate_s, look_again_s=look_again_s)
    assert verdict.retry_after_s == retry_after_s


def test_an_ask_that_is_too_large_is_not_promised_a_slot() -> None:
    assert "next slot" not in _verdict(Reason.TOO_LARGE, estimate_s=5.0).words()


@every(
    "seconds, words",
    [(0, "1 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "2 h"), (129_600, "2 d")],
)
def test_spans_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert span_words(seconds) == words
