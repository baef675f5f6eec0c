"""Many patterns at once: which of them could meet a new one?

A tree of names, in which each way down is one token. A question is a walk over pairs (node, how much of its
own pattern is read). Without wildcards that is one way, so it costs about the depth of a path and not the
number of tokens. Where ways fork no pair is looked at twice: at worst it costs the product of the two sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from flyball.core.tasks.globs import DEEP, Glob, Place, fits, meets, parse_pattern

Entry = tuple[str, str]
"""An owner and its token."""


class PatternTree:
    __slots__ = ("_answers", "_root")

    def __init__(self) -> None:
        self._root = _TrieNode(None)
        self._answers: dict[str, Entry | None] = {}
        """What was found, until something is added: tasks often name the same tokens."""

    def add(self, token: str, *, owner: str) -> None:
        self._answers.clear()
        entry = (owner, token)
        node = self._root
        node.first = node.first or entry
        pattern = parse_pattern(token)
        for name in pattern[:-1]:
            node = node.step(name, entry)
        if pattern[-1] is DEEP:
            node.below = node.below or entry
        else:
            node = node.step(pattern[-1], entry)
            node.end = node.end or entry

    def find(self, token: str) -> Entry | None:
        """One that meets the token."""
        if self._root.first is None:
            return None
        if token in self._answers:
            return self._answers[token]
        found = self._answers[token] = self._descend(parse_pattern(token))
        return found

    def _descend(self, pattern: Sequence[Place]) -> Entry | None:
        """Along plain names as far as they go: what ends on the way, or goes on where they end, is met.

        Where a wildcard of the tree offers another way, or the pattern has one itself, the search begins.
        """
        node = self._root
        fork: tuple[_TrieNode, int] | None = None
        for at, name in enumerate(pattern):
            child = None
            if fork is None and node.forks:
                fork = node, at
            if isinstance(name, str):
                child = node.plain.get(name)
            elif fork is None:
                fork = node, at
            if child is None:
                return _search(*fork, pattern) if fork else None
            if child.end is not None or child.below is not None:
                return child.end or child.below
            node = child
        return node.first


def _search(start: _TrieNode, begin: int, pattern: Sequence[Place]) -> Entry | None:
    last = len(pattern) - 1
    stack: _Stack = [(start, begin)]
    seen: set[tuple[_TrieNode, int]] = set()
    while stack:
        node, at = stack.pop()
        if node.below is not None:
            return node.below
        if at > last:
            if node.end is not None:
                return node.end
            continue
        name = pattern[at]
        if name is DEEP and at == last:
            return node.first  # all beneath: any entry that passed here
        if name is DEEP or node.loops:  # only here can two ways come together again
            if (node, at) in seen:
                continue
            seen.add((node, at))
        if name is DEEP:
            node.skip(at, stack)
        elif isinstance(name, str):
            node.read(name, at, stack)
        else:
            node.read_glob(name, at, stack)
    return None


class _TrieNode:
    """A place in the tree: how far some tokens have been read."""

    __slots__ = ("below", "deep", "end", "first", "forks", "globs", "lengths", "loops", "plain", "starts")

    def __init__(self, first: Entry | None, *, loops: bool = False) -> None:
        self.first = first
        """Who passed here before any other."""
        self.end: Entry | None = None
        """A token that is exactly this path; ``below``: one that is all beneath as well."""
        self.below: Entry | None = None
        self.plain: dict[str, _TrieNode] = {}
        self.globs: dict[Glob, _TrieNode] | None = None
        self.starts: dict[str, list[tuple[Glob, _TrieNode]]] = _NO_STARTS
        """The globs by what they begin with, of these ``lengths``: a plain name looks at few of many."""
        self.lengths: tuple[int, ...] = ()
        self.deep: _TrieNode | None = None
        """Behind a ``**`` in the middle of a token. That node ``loops``: any name leads back to it."""
        self.loops = loops
        self.forks = loops
        """A plain name may lead to more than one place."""

    def step(self, place: Place, entry: Entry) -> _TrieNode:
        """The node behind a place of a pattern, made where there is none."""
        if isinstance(place, str):
            node = self.plain.get(place)
            if node is None:
                node = self.plain[place] = _TrieNode(entry)
            return node
        self.forks = True
        if isinstance(place, Glob):
            return self._step_glob(place, entry)
        self.deep = self.deep or _TrieNode(entry, loops=True)
        return self.deep

    def _step_glob(self, glob: Glob, entry: Entry) -> _TrieNode:
        if self.globs is None:
            self.globs, self.starts = {}, {}
        node = self.globs.get(glob)
        if node is None:
            node = self.globs[glob] = _TrieNode(entry)
            self.starts.setdefault(glob.prefix, []).append((glob, node))
            if len(glob.prefix) not in self.lengths:
                self.lengths += (len(glob.prefix),)
        return node

    def read(self, name: str, at: int, stack: _Stack) -> None:
        """Put on the stack where a plain name at a place of a pattern leads to."""
        if self.deep is not None:
            stack.append((self.deep, at))
        if self.loops:
            stack.append((self, at + 1))
        if name in self.plain:
            stack.append((self.plain[name], at + 1))
        for length in self.lengths:
            for glob, node in self.starts.get(name[:length], ()):
                if fits(glob, name):
                    stack.append((node, at + 1))

    def read_glob(self, name: Glob, at: int, stack: _Stack) -> None:
        """The same for a name with wildcards."""
        if self.deep is not None:
            stack.append((self.deep, at))
        if self.loops:
            stack.append((self, at + 1))
        stack += [(node, at + 1) for other, node in self.plain.items() if fits(name, other)]
        if self.globs is not None:
            stack += [(node, at + 1) for glob, node in self.globs.items() if meets(glob, name)]

    def skip(self, at: int, stack: _Stack) -> None:
        """The same for a ``**`` at a place of a pattern: it is over, or it swallows one name more."""
        stack.append((self, at + 1))
        stack += [(node, at) for node in self.plain.values()]
        if self.globs is not None:
            stack += [(node, at) for node in self.globs.values()]
        if self.deep is not None:
            stack.append((self.deep, at))


_NO_STARTS: dict[str, list[tuple[Glob, _TrieNode]]] = {}
_Stack = list[tuple[_TrieNode, int]]
"""Where a walk goes on: a node, and the place of its own pattern that comes next."""
