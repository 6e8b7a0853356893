"""The fragmented dataflow graph of the training loop, read from the loop's own source.

    fragments   the parameters of `collect` and `learn` (replay_server/training/loop.py)
    edges       a name that a call on one fragment gives and a call on another takes; its type is
                the name's annotation

So the graph cannot say what the loop does not do: a line changed there is an edge changed here.
MSRL (Zhu et al., ATC 2023) builds its graph from the functions of the training loop in this way.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from replay_server.training import loop

HALVES = ("collect", "learn")


@dataclass(frozen=True, order=True)
class Edge:
    """`name`, of type `kind`, goes from one fragment to another."""

    source: str
    target: str
    name: str
    kind: str


@dataclass(frozen=True)
class Graph:
    """Fragments in the order the loop names them; edges in the order of their first use."""

    fragments: tuple[str, ...]
    edges: tuple[Edge, ...]


@cache
def graph() -> Graph:
    """Of the loop that every plan runs."""
    return graph_of(inspect.getsource(loop))


def graph_of(source: str) -> Graph:
    """Of a module whose functions `collect` and `learn` are such halves; it may have others that
    they call, whose parameters have the names of what they are handed."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    halves = [node for node in functions if node.name in HALVES]
    fragments = tuple(dict.fromkeys(a.arg for half in halves for a in half.args.args))
    kinds: dict[str, str] = {}
    makers: dict[str, list[str]] = {}
    for function in functions:
        for name, kind, maker in _names(function, fragments):
            if kind:
                kinds[name] = kind
            if maker and maker not in makers.setdefault(name, []):
                makers[name].append(maker)
    edges: dict[Edge, None] = {}
    for function in functions:
        own = {name: maker for name, _, maker in _names(function, fragments) if maker}
        for taker, name in _taken(function, fragments):
            for maker in [own[name]] if name in own else makers.get(name, []):
                if maker != taker:
                    edges[Edge(maker, taker, name, kinds.get(name, ""))] = None
    return Graph(fragments, tuple(edges))


def _names(
    function: ast.FunctionDef, fragments: tuple[str, ...]
) -> Iterator[tuple[str, str, str | None]]:
    """(name, type, the fragment that makes it): parameters that are no fragments, and whatever a
    call on a fragment is assigned to."""
    for argument in function.args.args:
        if argument.arg not in fragments and argument.annotation is not None:
            yield argument.arg, ast.unparse(argument.annotation), None
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation), _called(node.value, fragments)


def _called(node: ast.AST | None, fragments: tuple[str, ...]) -> str | None:
    """The fragment on which this is a call."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id in fragments:
            return owner.id
    return None


def _taken(function: ast.FunctionDef, fragments: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(fragment, name) of each name that a call on a fragment is handed, in the order of lines."""
    calls = [node for node in ast.walk(function) if _called(node, fragments)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        for argument in call.args:
            for node in ast.walk(argument):
                if isinstance(node, ast.Name):
                    yield _called(call, fragments), node.id
