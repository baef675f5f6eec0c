"""What a reviewer says about finished work, read strictly.

    {"verdict": "pass" | "block",
     "criteria": [{"criterion": 1, "met": true | false, "evidence": "..."}],
     "findings": [{"severity": "blocking" | "note", "where": "...", "what": "..."}]}

Models wrap their answer in prose and fences, so it is looked for anywhere in a text: the last JSON object
that has a verdict counts. What it means is not guessed at. Each criterion of the task is answered exactly
once, with evidence; a pass that has an unmet criterion or a blocking finding beside it, and a block that
names nothing, contradict themselves. Whatever is wrong is said in words, so that the reviewer can be asked
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

PASS: Final = "pass"  # noqa: S105 - a verdict
BLOCK: Final = "block"
BLOCKING: Final = "blocking"
NOTE: Final = "note"
TEXT_LIMIT: Final = 400_000
"""Longer answers are cut in front: the answer comes last."""
_STARTS_LIMIT = 2000
"""So many beginnings of an object that are none; a text may be made to have millions."""
_WORDS_LIMIT = 4000
_ITEM = re.compile(r"^ {0,3}(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(?P<text>\S.*)$")
_OBJECT = re.compile(r'\{\s*"')
_NUMBERED = re.compile(r"^\s*(?:criterion\s*)?#?(\d+)(?:\s*[.):-].*)?\s*$", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionAnswer:
    """One criterion of the task, and whether it is met."""

    criterion: str
    met: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFinding:
    severity: str
    where: str
    what: str

    @property
    def words(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    passed: bool
    criteria: tuple[CriterionAnswer, ...]
    findings: tuple[ReviewFinding, ...]

    @property
    def unmet(self) -> tuple[CriterionAnswer, ...]:
        return tuple(each for each in self.criteria if not each.met)

    @property
    def blocking(self) -> tuple[ReviewFinding, ...]:
        return tuple(each for each in self.findings if each.severity == BLOCKING)

    @property
    def notes(self) -> tuple[ReviewFinding, ...]:
        return tuple(each for each in self.findings if each.severity == NOTE)

    def why(self) -> str:
        """How much stands against it, in one line."""
        unmet, blocking = len(self.unmet), len(self.blocking)
        parts = [f"{unmet} of {len(self.criteria)} criteria not met"] if unmet else []
        parts += [f"{blocking} blocking finding{'s' * (blocking != 1)}"] if blocking else []
        return f"its review has {' and '.join(parts)}" if parts else "its review passed it"

    def objections(self) -> tuple[str, ...]:
        """What stands against it, one by one, up to a bound."""
        found = [f"not met: {each.criterion} ({each.evidence})" for each in self.unmet]
        found += [each.words for each in self.blocking]
        kept: list[str] = []
        room = _WORDS_LIMIT
        for each in found:
            if len(each) > room:
                return (*kept, f"{each[:room]} ...")
            kept.append(each)
            room -= len(each)
        return tuple(kept)


@dataclass(frozen=True, slots=True)
class ParsedReview:
    """A review, or what is wrong with what was taken for one."""

    review: Review | None
    problems: tuple[str, ...] = ()


# -- what is asked ----------------------------------------------------------------------------------------


def parse_criteria(acceptance: str) -> tuple[str, ...]:
    """The criteria of a task: the items of its list, else its paragraphs, else the task as a whole.

    >>> parse_criteria("- the page is there\\n- it has a title\\n  in large letters")
    ('the page is there', 'it has a title in large letters')
    >>> parse_criteria("")
    ('the task is done as it is written, completely',)
    """
    items: list[str] = []
    plain: list[str] = []
    listed = False
    for line in acceptance.splitlines():
        item = _ITEM.match(line)
        if item:
            listed = True
            items.append(item["text"].strip())
        elif listed and line.strip():
            items[-1] += f" {line.strip()}"
        elif not listed:
            plain.append(line)
    # A sentence in front of a list opens it ("It is done when:"); without a list it is all there is.
    paragraphs = [" ".join(text.split()) for text in "\n".join(plain).split("\n\n")]
    found = items or [text for text in paragraphs if text]
    return tuple(dict.fromkeys(found)) or ("the task is done as it is written, completely",)


# -- what is answered -------------------------------------------------------------------------------------


def parse_review(text: str, criteria: Sequence[str]) -> ParsedReview:
    """The review in a text."""
    objects = [each for each in _objects(text[-TEXT_LIMIT:]) if "verdict" in each]
    if not objects:
        return ParsedReview(None, ("there is no JSON object with a verdict in it, or it is cut off",))
    found = objects[-1]
    answered, wrong = _parse_answers(found.get("criteria"), criteria)
    findings, more = _parse_findings(found.get("findings"))
    wrong += more
    verdict = found.get("verdict")
    if verdict not in (PASS, BLOCK):
        wrong.append(f'"verdict" is {_quote(verdict)}; it is "{PASS}" or "{BLOCK}"')
    if wrong:
        return ParsedReview(None, tuple(wrong))
    review = Review(passed=verdict == PASS, criteria=tuple(answered), findings=tuple(findings))
    against = bool(review.unmet or review.blocking)
    if review.passed and against:
        return ParsedReview(None, (f"it says pass, and yet {review.why()}",))
    if not review.passed and not against:
        return ParsedReview(
            None, ("it says block, and names no criterion that is not met and nothing blocking",)
        )
    return ParsedReview(review)


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Every whole JSON object, those inside others left out."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(_STARTS_LIMIT):
        start = _OBJECT.search(text, at)
        if start is None:
            return
        try:
            value, at = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            at = start.start() + 1
            continue
        if isinstance(value, dict):
            yield value


def _parse_answers(given: Any, criteria: Sequence[str]) -> tuple[list[CriterionAnswer], list[str]]:
    if not isinstance(given, list):
        return [], ['"criteria" is missing; it is a list with an answer to each criterion']
    found: dict[int, CriterionAnswer] = {}
    wrong: list[str] = []
    for number, each in enumerate(given, 1):
        index, words = _parse_answer(each, criteria, found)
        if isinstance(words, CriterionAnswer):
            found[index] = words
        else:
            wrong.append(f"answer {number}: {words}")
    missing = [str(index + 1) for index in range(len(criteria)) if index not in found]
    if missing:
        wrong.append(f"no answer to criterion {', '.join(missing)}")
    return [found[index] for index in sorted(found)], wrong


def _parse_answer(
    each: Any, criteria: Sequence[str], before: Mapping[int, CriterionAnswer]
) -> tuple[int, CriterionAnswer | str]:
    if not isinstance(each, dict):
        return -1, "it is not an object"
    index = _which(each.get("criterion"), criteria)
    met, evidence = each.get("met"), each.get("evidence")
    if index is None:
        return -1, f"{_quote(each.get('criterion'))} is not a criterion of the task; give its number"
    if index in before:
        return -1, f"criterion {index + 1} is answered twice"
    if not isinstance(met, bool):
        return -1, f'"met" is {_quote(met)}; it is true or false'
    if not _is_text(evidence):
        return -1, '"evidence" is missing; say what shows it'
    return index, CriterionAnswer(criterion=criteria[index], met=met, evidence=evidence.strip())


def _which(given: Any, criteria: Sequence[str]) -> int | None:
    """By its number or by its words."""
    if isinstance(given, bool) or not isinstance(given, int | str):
        return None
    if isinstance(given, str):
        plain = [_plain(each) for each in criteria]
        if _plain(given) in plain:
            return plain.index(_plain(given))
        numbered = _NUMBERED.match(given[:200])
        if numbered is None:
            return None
        given = int(numbered[1])
    return given - 1 if 0 < given <= len(criteria) else None


def _parse_findings(given: Any) -> tuple[list[ReviewFinding], list[str]]:
    if not isinstance(given, list):
        return [], ['"findings" is missing; it is a list, empty if there is nothing']
    found: list[ReviewFinding] = []
    wrong: list[str] = []
    for number, each in enumerate(given, 1):
        words = _parse_finding(each)
        if isinstance(words, ReviewFinding):
            found.append(words)
        else:
            wrong.append(f"finding {number}: {words}")
    return found, wrong


def _parse_finding(each: Any) -> ReviewFinding | str:
    if not isinstance(each, dict):
        return "it is not an object"
    severity, where, what = each.get("severity"), each.get("where", ""), each.get("what")
    if severity not in (BLOCKING, NOTE):
        return f'"severity" is {_quote(severity)}; it is "{BLOCKING}" or "{NOTE}"'
    if not isinstance(where, str):
        return f'"where" is {_quote(where)}; it is text: a path, with a line if there is one'
    if not _is_text(what):
        return '"what" is missing; say what is wrong'
    return ReviewFinding(severity=severity, where=where.strip(), what=what.strip())


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .;,'\"`")


def _quote(value: Any) -> str:
    text = "missing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."
