"""The mutants of one C file, found in its syntax tree: an operator, a bound, a statement at a time.

Tree-sitter reads the file as it was written, before the preprocessor, so that a mutant is a line
of the tree that a person can read. (universalmutator works on regular expressions and makes mostly
what does not compile; mull needs a compiler plugin that Debian has not got.)

Left out wholly:
- what no test can or should tell apart: assertions, and the functions that only assert and that
  only tests call (ASSERTING): a looser one never fires; RP_SITE (empty in the product), prefetches
  (speed), texts, attributes, assembly;
- what is checked as it is compiled: static assertions and the macros of wire.c that are such,
  RP_LAYOUT, RP_FIELD and RP_REFUSAL; and the sizes of arrays, sizeof and the names of types;
- what is in no file of the core: the inline functions of headers, native/dpdk (it needs DPDK) and
  native/appliance (a program around the core); and the bodies of macros.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import tree_sitter_c
from tree_sitter import Language, Node, Parser

PARSER = Parser(Language(tree_sitter_c.language()))
QUIET_CALLS = re.compile(
    r"^(assert|static_assert|_Static_assert|RP_SITE|\w*prefetch\w*|RP_LAYOUT|RP_FIELD|RP_REFUSAL)$"
)
# All of a file, or of a function, that asserts invariants for tests, the simulator and the fuzzers.
ASSERTING = re.compile(
    r"native/\w+/\w+_check\.c"
    r"|native/\w+/(credit|hosts|wait|sum_tree)\.c:"
    r"(rp_\w+_check|check_queue|entry_mass|entry_count)$"
)
QUIET_NODES = {
    "preproc_include",
    "string_literal",
    "concatenated_string",
    "attribute_specifier",
    "static_assert_declaration",
    "gnu_asm_expression",
    "type_descriptor",
    "sizeof_expression",
}
OTHER = {"rp_min": "rp_max", "rp_max": "rp_min"}  # the order of their arguments is nothing
NOTHING = ("NULL", "0")
SWAPS = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==", "<", ">"),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "%": ("/",),
    "&": ("|",),
    "|": ("&",),
    "^": ("&",),
    "<<": (">>",),
    ">>": ("<<",),
    "&&": ("||",),
    "||": ("&&",),
    "++": ("--",),
    "--": ("++",),
    "+=": ("-=", "="),
    "-=": ("+=", "="),
    "*=": ("/=",),
    "/=": ("*=",),
    "|=": ("&=", "="),
    "&=": ("|=", "="),
    "^=": ("|=",),
    "<<=": (">>=",),
    ">>=": ("<<=",),
}
KIND_OF = {
    "binary_expression": "operator",
    "assignment_expression": "assignment",
    "update_expression": "assignment",
}


@dataclass(frozen=True)
class Unit:
    """A function, or what else stands at file scope (then it has no name)."""

    name: str
    first: int  # its lines
    last: int
    begin: int  # its first byte
    print: str  # a digest of its text


@dataclass(frozen=True)
class Mutant:
    """One replacement: bytes [begin, end) of `file` become `text`."""

    file: str
    line: int
    column: int
    place: int  # among the mutants that begin at this line and column
    kind: str
    begin: int
    end: int
    text: str
    first: int  # the lines of what has to run for the mutant to run
    last: int
    unit: Unit  # the function, or at file scope the declaration, that it lies in

    @property
    def name(self) -> str:
        """What it is called on command lines and in results."""
        return f"{self.file}:{self.line}:{self.column}:{self.place}"

    @property
    def id(self) -> str:
        """What it is called in results: it stays while its unit's text does."""
        unit = self.unit
        place = f"{self.file} {unit.print} {self.begin - unit.begin} {self.end - unit.begin}"
        return digest(f"{place} {self.text}".encode())

    def applied(self, source: bytes) -> bytes:
        """The file with this mutant in it; the numbers of the other lines stay."""
        old = source[self.begin : self.end]
        missing = old.count(b"\n") - self.text.encode().count(b"\n")
        return source[: self.begin] + self.text.encode() + b"\n" * missing + source[self.end :]

    def changed(self, source: bytes) -> tuple[str, str]:
        """The lines it touches before and after, without indents: what a person compares."""
        last = source.count(b"\n", 0, self.end)
        before = source.split(b"\n")[self.line - 1 : last + 1]
        after = self.applied(source).split(b"\n")[self.line - 1 : last + 1]
        return tidy(before), tidy(after)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def tidy(lines: list[bytes]) -> str:
    """Lines as one, with single blanks."""
    return " ".join(" ".join(line.decode().split()) for line in lines).strip()


def text_of(node: Node) -> str:
    return node.text.decode()


def quiet(node: Node) -> bool:
    """Whether nothing below this node is mutated."""
    if node.type in QUIET_NODES:
        return True
    if node.type == "call_expression":
        return bool(QUIET_CALLS.match(text_of(node.child_by_field_name("function"))))
    return False


def of_number(node: Node) -> list[tuple[str, str]]:
    if node.parent.type == "array_declarator":
        return []
    text = text_of(node)
    if re.fullmatch(r"0[uUlL]*", text):
        return [("constant", "1" + text[1:])]
    return [("constant", f"({text} + 1)"), ("constant", f"({text} - 1)")]


def of_condition(node: Node) -> list[tuple[str, str]]:
    """The condition turned round, where no other operator already does that."""
    inner = node
    while inner.type == "parenthesized_expression" and inner.named_child_count == 1:
        inner = inner.named_children[0]
    if inner.type == "binary_expression":
        if text_of(inner.child_by_field_name("operator")) in ("==", "!=", "<", "<=", ">", ">="):
            return []
    elif inner.type == "unary_expression" and text_of(inner).startswith("!"):
        return []
    negated = f"!({text_of(inner)})"
    return [("condition", f"({negated})" if inner != node else negated)]


def of_statement(node: Node) -> list[tuple[str, str]]:
    text = text_of(node)
    if node.type in ("break_statement", "continue_statement"):
        return [("dropped", ";")]
    if node.type == "return_statement":
        value = text.removeprefix("return").rstrip(";").strip()
        plain = (
            value in ("", "0", "1", "NULL") or value.startswith("{") or value.startswith("(struct")
        )
        return [] if plain else [("returned", "return 0;")]
    inner = node.named_children[0] if node.named_child_count else None
    if inner is None or quiet(inner) or text.startswith("(void)"):
        return []
    return [("dropped", ";")]


def of_arguments(node: Node) -> list[tuple[int, int, str, str]]:
    """Neighbours changed for each other; the compiler throws out what makes no sense."""
    found = []
    arguments = [child for child in node.named_children if child.type != "comment"]
    for left, right in pairwise(arguments):
        if text_of(left) != text_of(right):
            between = node.text[
                left.end_byte - node.start_byte : right.start_byte - node.start_byte
            ].decode()
            text = text_of(right) + between + text_of(left)
            found.append((left.start_byte, right.end_byte, "arguments", text))
    return found


def at(node: Node) -> list[tuple[int, int, str, str]]:
    """The mutants that this very node gives: (begin, end, kind, text)."""
    found: list[tuple[int, int, str, str]] = []

    def whole(pairs: list[tuple[str, str]], target: Node = node) -> None:
        found.extend((target.start_byte, target.end_byte, kind, text) for kind, text in pairs)

    if node.type in KIND_OF:
        operator = node.child_by_field_name("operator")
        swaps = SWAPS.get(text_of(operator), ())
        if text_of(operator) == "!=" and text_of(node.child_by_field_name("right")) in NOTHING:
            swaps = swaps[:1]  # few numbers are below it: `> 0` is the same
        whole([(KIND_OF[node.type], swap) for swap in swaps], operator)
    elif node.type == "unary_expression":
        if text_of(node.child_by_field_name("operator")) in "!-~":
            whole([("operator", text_of(node.child_by_field_name("argument")))])
    elif node.type == "number_literal":
        whole(of_number(node))
    elif node.type in ("true", "false"):
        whole([("constant", "false" if node.type == "true" else "true")])
    elif node.type == "call_expression" and text_of(node.child_by_field_name("function")) in OTHER:
        function = node.child_by_field_name("function")
        whole([("operator", OTHER[text_of(function)])], function)
    elif node.type == "argument_list" and text_of(node.prev_sibling) not in OTHER:
        found.extend(of_arguments(node))
    if node.type.endswith("_statement") or node.type == "conditional_expression":
        condition = node.child_by_field_name("condition")
        if condition is not None and not quiet(condition) and node.type != "switch_statement":
            whole(of_condition(condition), condition)
    if node.type in (
        "expression_statement",
        "return_statement",
        "break_statement",
        "continue_statement",
    ):
        whole(of_statement(node))
    return found


def anchor(node: Node) -> tuple[int, int]:
    """The lines of the statement, or of the head of it, that `node` stands in."""
    inner = node
    while node.parent is not None:
        if node.type.endswith("_statement") or node.type == "declaration":
            if node.type in (
                "if_statement",
                "for_statement",
                "while_statement",
                "switch_statement",
            ):
                return node.start_point[0] + 1, inner.end_point[0] + 1
            if node.type != "compound_statement":
                return node.start_point[0] + 1, node.end_point[0] + 1
        inner, node = node, node.parent
    return inner.start_point[0] + 1, inner.end_point[0] + 1


def unit_of(node: Node) -> Unit:
    name = node
    while name is not None and name.type != "identifier":
        name = name.child_by_field_name("declarator")
    named = node.type == "function_definition" and name is not None
    first, last = node.start_point[0] + 1, node.end_point[0] + 1
    return Unit(text_of(name) if named else "", first, last, node.start_byte, digest(node.text))


def functions_of(root: Path, file: str) -> list[Unit]:
    """The functions of root/file."""
    found: list[Unit] = []

    def walk(node: Node) -> None:
        if node.type == "function_definition":
            found.append(unit_of(node))
            return
        for child in node.children:
            walk(child)

    walk(PARSER.parse((root / file).read_bytes()).root_node)
    return found


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """Every mutant of root/file, in the order of its lines."""
    source = (root / file).read_bytes()
    found: list[Mutant] = []
    seen: set[tuple[int, int, str]] = set()
    places: dict[tuple[int, int], int] = {}

    def walk(node: Node, unit: Unit | None) -> None:
        if quiet(node):
            return
        inside = unit is not None and unit.name
        above = node.parent.type if node.parent is not None else ""
        if not inside and (node.type == "function_definition" or above == "translation_unit"):
            unit = unit_of(node)
            if ASSERTING.match(f"{file}:{unit.name}"):
                return
        for begin, end, kind, text in at(node):
            if (begin, end, text) in seen:
                continue
            seen.add((begin, end, text))
            line = source.count(b"\n", 0, begin) + 1
            column = begin - source.rfind(b"\n", 0, begin)
            place = places.get((line, column), 0)
            places[line, column] = place + 1
            first, last = anchor(
                node.child_by_field_name("condition") if kind == "condition" else node
            )
            found.append(
                Mutant(file, line, column, place, kind, begin, end, text, first, last, unit)
            )
        for child in node.children:
            walk(child, unit)

    walk(PARSER.parse(source).root_node, None)
    return sorted(found, key=lambda mutant: (mutant.line, mutant.column, mutant.place))
