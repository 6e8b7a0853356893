"""PROTOCOL.md against the code: its layouts compile, its tables are the headers', its hex is the
golden bytes, and a client written from it alone holds a whole conversation with a real server.
"""

from __future__ import annotations

import functools
import math
import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import protocol_client
import protocol_numbers
import pytest

from replay_server import Column, NStep, Prioritized, Row, Server, Spec, Table, errors

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "PROTOCOL.md").read_text()
BYTES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "f64": 8}

# In order of their numbers; a release appends its new ones here, and nothing else ever changes.
STATUSES = """
OK BAD_MAGIC BAD_VERSION BAD_SIZE BAD_CHECKSUM BAD_OP BAD_RESERVED BAD_COOKIE UNKNOWN_SESSION
NO_SESSION_FREE ADDRESS_CHANGED UNKNOWN_TABLE UNKNOWN_PLAN STALE_EPOCH NO_WRITER_FREE
NOT_A_WRITER BAD_STREAM BAD_SEQUENCE BAD_STEP BAD_PIECE BAD_PRIORITY BATCH_TOO_LARGE
NOTHING_DRAWABLE BLOCKED NEVER_FITS FORGOTTEN EARLY RETRY GONE TOO_LARGE BUSY BAD_HASH
NO_WEIGHTS BAD_ARGUMENT NOT_YET EXISTS OVERWRITTEN CLOSING_ROW UNKNOWN_STEP TIMEOUT CLOSED FULL
SERVER_RESTARTED SESSION_EXPIRED NO_MEMORY SYSTEM BAD_REGION PENDING INSECURE NO_TRANSPORT
FORKED SHORT_BATCH LOST_PLACE WRONG_QUEUE BAD_FEATURE TABLE_FULL NOT_AUTHORISED ADDRESS_FULL
DISK_FULL DEVICE_LOST
"""
COUNTERS = """
datagrams_in datagrams_out bytes_in bytes_out turns drop_size drop_magic drop_version
drop_checksum drop_reserved drop_op drop_replayed drop_no_room drop_unsolicited hellos
cookie_refused unknown_session address_changed sessions_opened sessions_closed sessions_expired
sessions_refused refused_table refused_plan refused_epoch refused_writer refused_stream
refused_sequence refused_step refused_piece refused_priority refused_batch refused_argument
refused_never_fits refused_hash refused_blob pushes pushes_repeated steps_committed
steps_lost_place holes_overwritten episodes_cut items_created items_existed items_overwritten
items_not_yet items_refused items_evicted masses_saturated samples samples_repeated
samples_forgotten samples_empty samples_blocked items_sampled items_served_overwritten pulls
pushes_blocked releases updates updates_repeated updates_forgotten updates_early
priorities_applied priorities_stale priorities_unknown weights_published weights_pieces
blob_datagrams retransmissions timeouts losses_seen reconnects redraws wrong_queue rebinds
refused_feature refused_address waits_lapsed waits_withdrawn drop_far refused_disk
weights_dropped pushes_early drop_share publishes_forgotten items_undrawn
"""


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
    source = ['#include "protocol/wire.h"']
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
    header = (ROOT / "native/protocol/wire.h").read_text()
    assert names == set(re.findall(r"^struct (rp_\w+) \{", header, re.MULTILINE))


def test_the_documents_statuses_and_counters_are_the_headers():
    """Given the two tables. Expect name, number and sentence of status.h, and no others."""
    header = (ROOT / "native/protocol/status.h").read_text()
    statuses = re.findall(r'X\((\w+),\s+(\d+), "(.*?)"\)', header)
    assert table_rows("Statuses") == [[number, name, text] for name, number, text in statuses]
    counters = re.findall(r'X\((\w+),\s+"(.*?)"\)', header[header.index("RP_COUNTERS(X)") :])
    rows = [[str(i), name, text] for i, (name, text) in enumerate(counters)]
    assert table_rows("Counters") == rows


def test_no_status_and_no_counter_is_renumbered():
    """Given every status and counter that was ever released. Expect its number to be what it was:
    both lists grow at their ends."""
    header = (ROOT / "native/protocol/status.h").read_text()
    statuses = re.findall(r'X\((\w+),\s+(\d+), "', header)
    counters = re.findall(r'X\((\w+),\s+"', header[header.index("RP_COUNTERS(X)") :])
    assert [int(number) for _, number in statuses] == list(range(len(statuses)))
    pinned = STATUSES.split(), COUNTERS.split()
    assert [name for name, _ in statuses][: len(pinned[0])] == pinned[0]
    assert counters[: len(pinned[1])] == pinned[1]
    assert list(map(len, pinned)) == [len(statuses), len(counters)], "pin the new ones here"


def test_a_status_that_nobody_returns_is_reserved():
    """Given each status. Expect its sentence to say `reserved` where no file returns it, and there
    alone, and no remedy of it in Python, which nobody could follow."""
    header = ROOT / "native/protocol/status.h"
    files = {*ROOT.glob("native/*/*.[ch]"), *ROOT.glob("replay_server/**/*.py")}
    files -= {header, ROOT / "replay_server/errors.py"}
    code = "\n".join(path.read_text() for path in sorted(files))
    found = re.findall(r'X\((\w+), +\d+, "(.*)"\)', header.read_text())
    unused = {name for name, _ in found if not re.search(rf'\bRP_{name}\b|"{name}"', code)}
    assert unused == {name for name, said in found if said.startswith("reserved: ")} != set()
    assert {name for name in unused if errors._KINDS[name][1]} == set()


def test_each_counter_is_counted_somewhere():
    """Given each counter. Expect a file of the core, besides the list, to name it."""
    header = ROOT / "native/protocol/status.h"
    code = "\n".join(path.read_text() for path in ROOT.glob("native/*/*.[ch]") if path != header)
    text = header.read_text()
    counters = re.findall(r'X\((\w+),\s+"', text[text.index("RP_COUNTERS(X)") :])
    assert [name for name in counters if not re.search(rf"\bRP_COUNT_{name}\b", code)] == []


def test_the_documents_hex_is_the_golden_bytes():
    """Given the worked examples. Expect C and plain Python to build the same, name by name."""
    documented = {words[0]: "".join(text.split()) for words, text in blocks("golden")}
    assert documented == {name: data.hex() for name, data in protocol_client.examples()}
    subprocess.run(["make", "-s", "build/golden"], cwd=ROOT, check=True)
    printed = subprocess.run(
        [ROOT / "build" / "golden"], capture_output=True, text=True, check=True
    )
    assert dict(line.split() for line in printed.stdout.splitlines()) == documented


# -- the numbers in sentences --------------------------------------------------------------------

NUMBER = r"(?:0x[0-9A-Fa-f]+|\d+\^−?\d+|\d+(?:\.\d+)?)"
SENTENCE_NUMBER = re.compile(rf"(?<![\w.^`#/-])(?<!`0x){NUMBER}(?![\w^/])")
PLAIN = ("0", "1")  # of counting and of saying "nothing"; every other number is checked


def prose() -> str:
    """The document without hex, layouts, algorithms and the tables of sections 9 and 10."""
    text = re.sub(r"^```.*?^```\n", "", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^    .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"\n## 9\. .*(?=\n## 11\. )", lambda m: re.sub(r"\n\|.*", "", m[0]), text, flags=re.S
    )
    text = re.sub(r"^\| \d+ \| [A-Z]+ \| (`|nothing).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(#+ )?\d+\. ", "", text, flags=re.MULTILINE)
    return re.sub(r"\s+", " ", re.sub(r"([Ss]ections?|RFC) \d+( and \d+)?", "", text))


def test_every_number_in_a_sentence_is_the_codes():
    """Given each number in a sentence. Expect a constant of the code that it is, and to be that."""
    text = prose().replace("`", "")
    source = [f'#include "{name}"' for name in protocol_numbers.HEADERS]
    covered = [False] * len(text)
    for fragment, expressions in protocol_numbers.NUMBERS:
        numbers = re.findall(r"\[([^\]]*\d[^\]]*)\]", fragment)
        plain = re.sub(r"\[([^\]]*\d[^\]]*)\]", r"\1", fragment)
        assert len(numbers) == len(expressions.split(";")), fragment
        assert plain in text, f"the page does not say: {plain}"
        for found in re.finditer(re.escape(plain), text):
            covered[found.start() : found.end()] = [True] * len(plain)
        for number, expression in zip(numbers, expressions.split(";"), strict=True):
            value = re.sub(r"^2\^(\d+)$", r"(1ull << \1)", number)
            if expression.strip() != "-":
                claim = f'"{plain}: {expression.strip()}"'
                source.append(f"_Static_assert(({expression}) == {value}, {claim});")
    loose = [
        text[max(0, found.start() - 60) : found.end() + 30]
        for found in SENTENCE_NUMBER.finditer(text)
        if found.group() not in PLAIN and not covered[found.start()]
    ]
    assert not loose, (
        "numbers that nothing checks (tests/support/protocol_numbers.py checks them):\n"
        + "\n".join(loose)
    )
    compiles("\n".join(source))


def test_a_flipped_bit_is_refused_at_every_place():
    """Given an example as an answer. Expect the checksum to catch each single flipped bit."""
    good = bytearray(protocol_client.examples()[3][1])
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            protocol_client.parse(bytes(bad))


# -- masses --------------------------------------------------------------------------------------


@functools.cache
def power_table(name: str) -> list[list[int]]:
    (text,) = (text for words, text in blocks("power") if words == [name])
    numbers = [int(number, 16) for number in text.split()]
    return [numbers[i : i + 16] for i in range(0, len(numbers), 16)]


def mass_of(priority: float, alpha: float, capacity: int) -> int:
    """The mass by section 6 of the document, word for word, with the tables of section 13."""
    log2, exp2 = power_table("log2"), power_table("exp2")
    if priority == 0:
        return 0
    fraction, exponent = math.frexp(priority)  # fraction in [0.5, 1)
    z = (exponent - 1 << 52) + round((2 * fraction - 1) * 2**52)
    r = (z + 2**19) >> 20
    e, x = r >> 32, r % 2**32
    i, w = x >> 28, x % 2**28
    c = log2[5][i]
    for degree in (4, 3, 2, 1):
        c = log2[degree][i] - (w * c >> 28)
    a = math.floor(alpha * 2**48)
    y = e * a + ((log2[0][i] + (w * c >> 28)) * a >> 38)
    q = (y + 2**15) >> 16
    n, g = q >> 32, q % 2**32
    i, w = g >> 28, g % 2**28
    d = exp2[4][i]
    for degree in (3, 2, 1, 0):
        d = exp2[degree][i] + (w * d >> 28)
    shift = n + 26 - 39
    mass = d << shift if shift >= 0 else ((d >> -shift - 1) + 1) >> 1
    return min(max(mass, 1), 2**63 // capacity)


def test_the_documents_mass_function_is_the_servers(tmp_path):
    """Given priorities of every size, subnormal ones too. Expect the document's arithmetic and
    tables to give the server's masses, to the bit."""
    rng = np.random.default_rng(20)
    priorities = np.concatenate(
        [10.0 ** rng.uniform(-320, 308, 3000), rng.uniform(0, 4, 3000), [0.0, 1.0, 5e-324, 1e300]]
    )
    cases = [
        (float(priority), float(alpha), int(capacity))
        for priority, alpha, capacity in zip(
            priorities,
            rng.choice([0.0, 0.4, 0.6, 1.0, 7.9], priorities.size),
            rng.choice([1, 1000, 1 << 26], priorities.size),
            strict=True,
        )
    ]
    (tmp_path / "mass.c").write_text(
        '#include "base/power.h"\n#include <stdio.h>\n'
        "int main(void) { double p, a; unsigned long long c; struct rp_power power;\n"
        'while (scanf("%la %la %llu", &p, &a, &c) == 3) { rp_power_exponent(a, &power);\n'
        'printf("%llu\\n", (unsigned long long)rp_power_mass(&power, p, (1ull << 63) / c)); } }\n'
    )
    parts = [str(ROOT / "native/base" / name) for name in ("power.c", "power_avx512.c")]
    program = str(tmp_path / "mass")
    command = ["gcc", "-std=gnu11", f"-I{ROOT / 'native'}", str(tmp_path / "mass.c"), *parts]
    subprocess.run([*command, "-o", program, "-lm"], check=True)
    lines = "".join(f"{p.hex()} {a.hex()} {c}\n" for p, a, c in cases)
    told = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    assert len(power_table("log2")) == 6 and len(power_table("exp2")) == 5
    assert [int(line) for line in told.stdout.split()] == [mass_of(*case) for case in cases]


def test_the_documents_refusals_name_operations_and_statuses():
    """Given the table of operation and status. Expect each name to exist, and each status that a
    server sends to stand there, or in the sentence above it, or to be of a create."""
    section = DOCUMENT.split("### Statuses by operation\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    header = (ROOT / "native/protocol/wire.h").read_text()
    operations = set(re.findall(r"RP_OP_(\w+) = \d+", header))
    statuses = {row[1] for row in table_rows("Statuses")}
    numbers = re.findall(r"^\| (\d+) \| ([A-Z]+) \| (?:`|nothing)", DOCUMENT, re.MULTILINE)
    enumerated = re.findall(r"RP_OP_(\w+) = (\d+)", header.split("RP_OP_COUNT")[0])
    assert numbers == [(number, name) for name, number in enumerated]
    assert {row[0].strip() for row in rows} <= operations
    named = {row[1].strip() for row in rows}
    assert named <= statuses and len(rows) == len({tuple(row[:2]) for row in rows})
    source = "".join(path.read_text() for path in (ROOT / "native/server").glob("serve*.c"))
    sent = set(re.findall(r"-RP_([A-Z_]+)\b", source)) & statuses
    drops = {"BAD_MAGIC", "BAD_CHECKSUM", "BAD_REGION"}
    assert sent - drops <= named | set(re.findall(r"[A-Z_]{4,}", section))
    spelled = set(re.findall(r"\b[A-Z]{3,}_[A-Z_]+\b", prose()))
    words = {f"RP_{word}" for word in spelled} & set(re.findall(r"\bRP_\w+", header))
    assert spelled <= statuses | {word[3:] for word in words}


# -- the conversation ----------------------------------------------------------------------------

SPEC = Spec(
    (
        Column("observation", np.dtype(np.float32), (200,)),
        Column("action", np.dtype(np.int64)),
        Column("reward", np.dtype(np.float32)),
        Column("terminated", np.dtype(np.bool_)),
    )
)
CAPACITY, ONE = 1024, 1 << 26


@pytest.fixture(scope="module")
def told():
    """(what came back to the plain client, the server's counters) of one whole conversation."""
    table = Table("main", step=SPEC, plan=NStep(2), capacity=CAPACITY, sampler=Prioritized(1.0))
    with Server([table], "udp://127.0.0.1:0", seed=9) as server:
        host, port = server.address.removeprefix("udp://").split(":")
        heard = protocol_client.converse(host, int(port), "main")
        yield heard, server.counters()


def item_bytes_of(steps):
    """The item at step 0 by PROTOCOL.md's order: column by column, offset by offset."""
    offsets = {"observation": (0, 2), "action": (0,), "reward": (0, 1), "terminated": (0, 1)}
    item = b"".join(
        steps[step][SPEC.offsets[column.name] : SPEC.offsets[column.name] + column.size]
        for column in SPEC
        for step in offsets[column.name]
    )
    return item + bytes(-len(item) % 8)


def test_a_client_of_the_document_alone_stores_steps_exactly_once(told):
    """Given three whole steps, one in pieces, and the first again. Expect one key each, the fourth
    committed with its last piece, and the repeat told apart from a second storing."""
    heard, counters = told
    assert heard["table"]["ahead"] == 2
    head = heard["table"]["head"]
    assert head > 0 and head % CAPACITY == 0
    assert heard["first"] == [(head + k, 1, 0) for k in range(3)]
    assert heard["pieces"] == [(head + 3, 0, 0), (head + 3, 1, 0)], "a step in pieces"
    assert heard["again"] == (head, 1, 0)
    assert (counters["steps_committed"], counters["pushes_repeated"]) == (4, 1)


def test_a_client_of_the_document_alone_draws_what_it_stored(told):
    """Given one item of priority 1.5, created twice, the second time with 9. Expect EXISTS and the
    first priority; the same batch for the same id; its bytes, some of them pulled."""
    heard, counters = told
    assert (heard["made"], heard["repeated"]) == ([protocol_client.OK], [protocol_client.EXISTS])
    item = (heard["table"]["head"], ONE * 3 // 2, 0, 2, item_bytes_of(heard["steps"]))
    for batch in (heard["drawn"], heard["same"]):
        assert (batch.epoch, batch.drawable) == (heard["table"]["epoch"], 1)
        assert batch.total == ONE * 3 // 2, "the repeated create left the priority alone"
        assert batch.items == [item] * 4
        assert batch.datagrams > 2, "a batch of several datagrams"
    assert (counters["items_created"], counters["items_existed"]) == (1, 1)
    assert counters["pulls"] >= 2 and counters["samples_repeated"] >= 1
    assert (counters["samples"], counters["items_sampled"]) == (2, 5)


def test_a_client_of_the_document_alone_sets_a_priority(told):
    """Given a priority for the item, and one for a step that is none. Expect applied and unknown,
    and the new mass at the next draw."""
    heard, counters = told
    assert heard["updated"] == (1, 0, 1)
    assert heard["later"].total == ONE // 4
    assert [entry[:2] for entry in heard["later"].items] == [(heard["table"]["head"], ONE // 4)]
    assert (counters["priorities_applied"], counters["priorities_unknown"]) == (1, 1)
    assert (counters["sessions_opened"], counters["sessions_closed"]) == (1, 1)


# -- sentences with a conversation of their own --------------------------------------------------

SMALL = Spec((Column("reward", np.dtype(np.float32)), Column("terminated", np.dtype(np.bool_))))


def spoken(table: Table):
    """(server, host and port) of one small server; the caller closes it."""
    server = Server([table], "udp://127.0.0.1:0", seed=9)
    host, port = server.address.removeprefix("udp://").split(":")
    return server, (host, int(port))


def granted(session, number: int) -> tuple[int, int]:
    """(next sequence, window) of a writer's place with one stream."""
    rest = session.ask(protocol_client.WRITER, 1, protocol_client.writer_request(1), number).rest
    return struct.unpack_from("<QI", rest, 8)


def one_run(epoch, first, steps, flags=0):
    """PUSH's body of whole steps that begin at sequence and step `first`."""
    run = protocol_client.run(first, first, 0, b"".join(steps), flags, len(steps))
    return protocol_client.push(epoch, [run], [])


def test_steps_without_an_answer_may_be_stored_twice_by_a_new_session():
    """Given a step whose answer nobody read, and a session that is gone. Expect UNKNOWN_SESSION as
    the page lays it out, a writer that starts at 0, and the step sent again under another key."""
    server, at = spoken(Table("main", step=SPEC, plan=NStep(2), capacity=CAPACITY))
    with server:
        session = protocol_client.Session(*at)
        table = session.table("main")
        number, epoch, steps = table["number"], table["epoch"], [bytes(table["step_bytes"])] * 2
        assert granted(session, number)[0] == 0
        head = table["head"]
        first = session.pushed(1, one_run(epoch, 0, steps[:1]), number)[0]
        session.send(protocol_client.PUSH, 2, one_run(epoch, 1, steps[1:]), number)
        session.ask(protocol_client.CLOSE, 1, b"")  # taken after it; its answer goes by unread
        session.send(protocol_client.PUSH, 2, one_run(epoch, 1, steps[1:]), number)
        heard = (session.receive(protocol_client.PUSH, 2) for _ in range(8))
        answer = next(one for one in heard if one is not None)
        assert (answer.status, answer.connection) == (protocol_client.UNKNOWN_SESSION, 0)
        refused = struct.pack("<QIHH", session.connection, session.packet, 0, 0)
        assert answer.rest[: len(refused)] == refused
        session.socket.close()
        session = protocol_client.Session(*at)
        assert granted(session, number)[0] == 0
        again = session.pushed(1, one_run(epoch, 0, steps[1:]), number)[0]
        assert (first, again) == ([(head, 1, 0)], [(head + 2, 1, 0)])
        assert server.counters()["steps_committed"] == 3, "that step is stored under two keys"
        session.close()


def test_a_closing_rows_bytes_reach_items_as_written():
    """Given an episode of one step, whose closing row has a reward and says terminated. Expect the
    row counted in `ahead`, and its bytes in the item."""
    server, at = spoken(Table("main", step=SPEC, plan=NStep(2), capacity=CAPACITY))
    with server:
        session = protocol_client.Session(*at)
        table = session.table("main")
        number, epoch, size = table["number"], table["epoch"], table["step_bytes"]
        granted(session, number)
        steps = [bytes((7 * i + k + 1) % 251 for i in range(size)) for k in range(2)]
        for k in range(2):
            flags = protocol_client.END * k
            done = session.pushed(1 + k, one_run(epoch, k, steps[k : k + 1], flags), number)[0]
            assert done == [(table["head"] + k, 1, 0)]
        body = protocol_client.push(epoch, [], [protocol_client.create(0, 0, 1.0)])
        assert list(session.pushed(3, body, number)[1]) == [protocol_client.OK]
        count = table["item_bytes"]
        batch = session.batch(1, protocol_client.sample(epoch, 1), number, 1, count)
        ((key, _, behind, ahead, item),) = batch.items
        assert (key, behind, ahead) == (table["head"], 0, 1)
        rows = [
            row[SPEC.offsets[name] : SPEC.offsets[name] + width]
            for name, width in (("reward", 4), ("terminated", 1))
            for row in steps
        ]
        begin = 2 * 800 + 8  # behind two observations and an action
        assert item[begin : begin + 10] == b"".join(rows)
        session.close()


def test_the_keys_of_a_run_are_told_until_a_window_later():
    """Given a run at sequence 0, repeated. Expect its key until the sequence `window` was sent, and
    then that it is stored, without its key."""
    server, at = spoken(Table("main", step=SMALL, plan=Row(), capacity=1 << 14))
    with server:
        session = protocol_client.Session(*at)
        table = session.table("main")
        number, epoch, step = table["number"], table["epoch"], bytes(table["step_bytes"])
        head, (_, window) = table["head"], granted(session, number)
        for id_, first in enumerate(range(0, window, 64), 1):
            count = min(64, window - first)
            done = session.pushed(id_, one_run(epoch, first, [step] * count), number)[0]
            assert done == [(head + first, count, 0)]
        repeat = one_run(epoch, 0, [step])
        assert session.pushed(5000, repeat, number)[0] == [(head, 1, 0)]
        beyond = session.pushed(5001, one_run(epoch, window, [step]), number)[0]
        assert beyond == [(head + window, 1, 0)]
        assert session.pushed(5002, repeat, number)[0] == [(0, 1, 0)]
        assert server.counters()["steps_committed"] == window + 1
        session.close()
