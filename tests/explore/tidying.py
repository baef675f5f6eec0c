"""One form for blocks that are alike, so that they are visited once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tests.explore.world import GONE, LIVE, Block

M = TypeVar("M", bound=tuple[int, ...])


def with_one(messages: tuple[M, ...], message: M) -> tuple[M, ...]:
    """In which order they were sent is told by their numbers; the network keeps none."""
    return tuple(sorted((*messages, message)))


def without(messages: tuple[M, ...], message: M) -> tuple[M, ...]:
    index = messages.index(message)
    return (*messages[:index], *messages[index + 1 :])


def dead(block: Block) -> Block:
    """What is left of a process: its lease, and renewals that are still on their way."""
    return GONE._replace(row=block.row, saved=block.saved, requests=block.requests)


def ranked(block: Block) -> Block:
    """The same block with sequence numbers that are as small as their order allows; 0 is before the first."""
    hold, row, saved = block.hold, block.row, block.saved
    seqs = {hold.seq} if block.status == LIVE else set()
    seqs.update(one.seq for one in block.requests)
    seqs.update(one.seq for one in block.answers)
    seqs.update(one.seq for one in (row, saved) if one)
    rank = {seq: index for index, seq in enumerate(sorted(seqs | {0}))}
    if all(seq == index for seq, index in rank.items()):
        return block
    return block._replace(
        hold=hold._replace(seq=rank.get(hold.seq, 0)),
        row=row and row._replace(seq=rank[row.seq]),
        saved=saved and saved._replace(seq=rank[saved.seq]),
        requests=tuple(one._replace(seq=rank[one.seq]) for one in block.requests),
        answers=tuple(one._replace(seq=rank[one.seq]) for one in block.answers),
    )


def in_line(blocks: tuple[Block, ...], turn: int) -> tuple[Block, ...]:
    """How long a node has waited matters up to a turn, and beyond that only beside others."""
    rows = [row for block in blocks for row in (block.row, block.saved) if row]
    waits = sorted({row.since for row in rows if row.since > turn})
    place = {since: turn + index for index, since in enumerate(waits, 1)}
    if all(since == index for since, index in place.items()):
        return blocks
    return tuple(_placed(block, place) for block in blocks)


def _placed(block: Block, place: Mapping[int, int]) -> Block:
    row, saved = block.row, block.saved
    return block._replace(
        row=row and row._replace(since=place.get(row.since, row.since)),
        saved=saved and saved._replace(since=place.get(saved.since, saved.since)),
    )
