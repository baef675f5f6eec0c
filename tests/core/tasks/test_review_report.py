"""Reading a reviewer's answer: found anywhere, believed only as it is meant."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.tasks.review_report import ParsedReview, parse_criteria, parse_review
from tests.cases import every

TWO = ("the page is there", "it has a title")


def answer(**fields: Any) -> dict[str, Any]:
    met = [{"criterion": number, "met": True, "evidence": "seen"} for number in (1, 2)]
    return {"verdict": "pass", "criteria": met, "findings": [], **fields}


def read(**fields: Any) -> ParsedReview:
    return parse_review(json.dumps(answer(**fields)), TWO)


def finding(severity: str = "blocking", what: str = "it is empty", **more: Any) -> dict[str, Any]:
    return {"severity": severity, "where": "pages/a:1", "what": what, **more}


def wrong(**fields: Any) -> str:
    reading = read(**fields)
    assert reading.review is None
    return "; ".join(reading.problems)


# -- finding it -------------------------------------------------------------------------------------------


@every(
    "text",
    [
        "{}",
        "Here is my review.\n\n```json\n{}\n```\nThat is all.",
        'The form was {{"verdict": "pass" or "block"}}. So: {}',
        '{{"note": 1}} {}',
        "\ufeff{}\n",
    ],
)
def test_it_is_found_in_prose_and_fences(text: str) -> None:
    said = text.replace("{}", json.dumps(answer())).replace("{{", "{").replace("}}", "}")
    assert parse_review(said, TWO).review is not None


def test_the_last_of_several_counts() -> None:
    first, last = answer(), answer(verdict="block", findings=[finding()])
    reading = parse_review(f"{json.dumps(first)}\nOn second thought:\n{json.dumps(last)}", TWO)
    assert reading.review is not None
    assert not reading.review.passed


@every("text", ["", "Looks good to me!", "[]", "null", json.dumps(answer())[:-9], "{" * 9999])
def test_prose_and_what_is_cut_off_are_not_a_review(text: str) -> None:
    reading = parse_review(text, TWO)
    assert reading.review is None
    assert "cut off" in reading.problems[0]


@given(st.text(max_size=300))
def test_no_text_whatsoever_passes_by_accident(text: str) -> None:
    assert parse_review(text, TWO).review is None


def test_a_text_made_to_be_slow_is_given_up_on() -> None:
    assert parse_review('{"a":' * 60_000, TWO).review is None


# -- what it means ----------------------------------------------------------------------------------------


def test_a_pass_answers_everything_and_may_have_notes() -> None:
    review = read(findings=[finding("note")]).review
    assert review is not None
    assert review.passed
    assert [each.criterion for each in review.criteria] == list(TWO)
    assert len(review.notes) == 1


def test_a_block_says_what_is_against_it() -> None:
    unmet = {"criterion": 2, "met": False, "evidence": "no heading"}
    fields = answer(verdict="block", findings=[finding()])
    fields["criteria"][1] = unmet
    review = parse_review(json.dumps(fields), TWO).review
    assert review is not None
    assert review.why() == "its review has 1 of 2 criteria not met and 1 blocking finding"
    assert review.objections() == ("not met: it has a title (no heading)", "pages/a:1: it is empty")


@every("named", [1, "1", "1.", "#1", "criterion 1", "1. The page is there", "The  page is there."])
def test_a_criterion_is_named_by_number_or_words(named: object) -> None:
    fields = answer()
    fields["criteria"][0]["criterion"] = named
    assert parse_review(json.dumps(fields), TWO).review is not None


@every(
    "fields, said",
    [
        ({"verdict": "approve"}, '"verdict" is "approve"'),
        ({"verdict": None}, '"verdict" is missing'),
        ({"criteria": []}, "no answer to criterion 1, 2"),
        ({"criteria": None}, '"criteria" is missing'),
        ({"criteria": ["fine"]}, "it is not an object"),
        ({"criteria": [{"criterion": 3, "met": True, "evidence": "x"}]}, "3 is not a criterion"),
        ({"criteria": [{"criterion": True, "met": True, "evidence": "x"}]}, "true is not a criterion"),
        ({"criteria": [{"criterion": 1, "met": "yes", "evidence": "x"}]}, '"met" is "yes"'),
        ({"criteria": [{"criterion": 1, "met": True, "evidence": " "}]}, '"evidence" is missing'),
        ({"criteria": answer()["criteria"] * 2}, "criterion 1 is answered twice"),
        ({"findings": None}, '"findings" is missing'),
        ({"findings": ["none"]}, "it is not an object"),
        ({"findings": [finding("major")]}, '"severity" is "major"'),
        ({"findings": [finding(what="")]}, '"what" is missing'),
        ({"findings": [finding(where=3)]}, '"where" is 3'),
        ({"findings": [finding()]}, "it says pass, and yet its review has 1 blocking finding"),
        ({"verdict": "block"}, "it says block, and names no criterion"),
        ({"verdict": "block", "findings": [finding("note")]}, "it says block, and names no criterion"),
    ],
)
def test_whatever_is_not_plainly_meant_is_refused_in_words(fields: dict[str, Any], said: str) -> None:
    assert said in wrong(**fields)


# -- criteria ---------------------------------------------------------------------------------------------


@every(
    "text, found",
    [
        ("- one\n- two", ("one", "two")),
        ("It is done when:\n\n1. one\n2) two\n   and more", ("one", "two and more")),
        ("- [ ] one\n* [x] two", ("one", "two")),
        ("One thing.\nStill it.\n\nAnother.", ("One thing. Still it.", "Another.")),
        ("- same\n- same", ("same",)),
        ("  \n ", ("the task is done as it is written, completely",)),
    ],
)
def test_criteria_are_the_items_or_the_paragraphs(text: str, found: tuple[str, ...]) -> None:
    assert parse_criteria(text) == found
