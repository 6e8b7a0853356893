"""PROTOCOL.md against the code: its layouts compile, its tables are the headers', its hex is the
golden bytes, and a client written from it alone holds a whole conversation with a real server.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import protocol_client
import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = (ROOT / "PROTOCOL.md").read_text()
BYTES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "f64": 8}


def blocks(kind: str) -> list[tuple[list[str], str]]:
    """The document's fenced blocks of one kind: (words behind the kind, text)."""
    found = re.findall(rf"^```{kind} (.*?)\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    return [(words.split(), text) for words, text in found]


def table_rows(title: str) -> list[list[str]]:
    section = DOCUMENT.split(f". {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def compiles(source: str) -> None:
    command = ["gcc", "-std=c11", f"-I{ROOT / 'native'}", "-xc", "-fsyntax-only", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_documents_layouts_are_the_compilers():
    """Given each layout block. Expect every offset, size and structure in wire.h to agree."""
    source = ['#include "wire.h"']
    names = set()
    for (name, size), text in blocks("layout"):
        names.add(name)
        source.append(f'_Static_assert(sizeof(struct {name}) == {size}, "{name}");')
        for line in text.splitlines():
            offset, kind, field = line.split()
            count = int(kind[kind.index("[") + 1 : -1]) if "[" in kind else 1
            bytes_ = BYTES[kind.split("[")[0]] * count
            member = f"((struct {name} *)0)->{field}"
            source.append(
                f"_Static_assert(offsetof(struct {name}, {field}) == {offset} && "
                f'sizeof({member}) == {bytes_}, "{name}.{field}");'
            )
    compiles("\n".join(source))
    header = (ROOT / "native" / "wire.h").read_text()
    assert names == set(re.findall(r"^struct (rp_\w+) \{", header, re.MULTILINE))


def test_the_documents_statuses_and_counters_are_the_headers():
    """Given the two tables. Expect name, number and sentence of status.h, and no others."""
    header = (ROOT / "native" / "status.h").read_text()
    statuses = re.findall(r'X\((\w+),\s+(\d+), "(.*?)"\)', header)
    assert table_rows("Statuses") == [[number, name, text] for name, number, text in statuses]
    counters = re.findall(r'X\((\w+),\s+"(.*?)"\)', header[header.index("RP_COUNTERS(X)") :])
    rows = [[str(i), name, text] for i, (name, text) in enumerate(counters)]
    assert table_rows("Counters") == rows


def test_the_documents_hex_is_the_golden_bytes():
    """Given the worked examples. Expect C and plain Python to build the same, name by name."""
    documented = [(words[0], "".join(text.split())) for words, text in blocks("golden")]
    assert documented == [(name, data.hex()) for name, data in protocol_client.examples()]
    subprocess.run(["make", "-s", "build/golden"], cwd=ROOT, check=True)
    printed = subprocess.run(
        [ROOT / "build" / "golden"], capture_output=True, text=True, check=True
    )
    assert [tuple(line.split()) for line in printed.stdout.splitlines()] == documented


def test_a_flipped_bit_is_refused_at_every_place():
    """Given an example as an answer. Expect the checksum to catch each single flipped bit."""
    good = bytearray(protocol_client.examples()[3][1])
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            protocol_client.parse(bytes(bad))
