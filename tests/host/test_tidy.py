"""The house's own rules, checked: an unchecked rule is advice. Each failure names its line.

Limits: files under 600 lines, C functions at most 70, lines at most 100 columns. Layers: who may
include or import whom (ARCHITECTURE.md, "Who may know whom"). Forbidden everywhere: leftovers and
what hides failures; in the engine: clocks, sockets, threads, allocation, chance.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tracked import ROOT, tracked

COLUMNS, FILE_LINES, FUNCTION_LINES = 100, 600, 70

# The rooms of native/, and those that each may include; "" is native/ itself, where replay.h is.
ROOMS = {
    "base": set(),
    "os": set(),
    "protocol": {"base"},
    "table": {"base", "protocol"},
    "transport": {"base", "os", "protocol"},
    "server": {"base", "protocol", "table", "transport"},
    "client": {"base", "protocol", "transport"},
    "": {"base", "protocol", "transport", "server", "client"},
    "drive": {"", "base", "os", "protocol", "transport", "server"},
    "dpdk": {"base", "os", "protocol", "transport"},
    "appliance": {"", "base", "protocol"},
}
# What other rooms may include of these; the rest is their own.
DOORS = {
    "table": {"table.h", "intent.h", "verdict.h"},
    "server": {"server.h", "meter.h"},
    "client": {"client.h"},
    "transport": {"transport.h", "url.h"}
    | {f"transport_{kind}.h" for kind in ("loopback", "zmq", "dpdk")},
}
ENGINE_DOORS = DOORS | {"transport": {"transport.h"}}  # for server and client: bursts, no sockets
# What has Linux's calls: the rest is compiled for other systems as it is.
OF_LINUX = ("os", "dpdk", "appliance")
LINUX = (
    r"<linux/|<sys/(epoll|eventfd|timerfd|signalfd|inotify|syscall|sysinfo|prctl)\.h>|"
    r"\b(accept4|dup3|pipe2|ppoll|recvmmsg|sendmmsg|getrandom|statx|syscall)\s*\(|RP_POSIX"
)
ENGINE = ("base", "protocol", "table", "server", "client")
CLOCK = r"\b(clock_gettime|gettimeofday|time|rp_clock_ns)\s*\("
CLOCK_ROOMS = ("drive", "os", "dpdk")
ENGINE_FORBIDDEN = {
    "clock": CLOCK,
    "chance": r"\b(rand|random|srand|getrandom)\s*\(",
    "sockets": r"<sys/socket\.h>|<netinet/",
    "threads": r"<pthread\.h>|<threads\.h>",
    "allocation": r"\b(malloc|calloc|realloc|free|alloca)\s*\(",
}
LEFTOVERS = r"\b(TODO|FIXME|XXX|HACK)\b"


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def places(paths: list[Path], pattern: str, but: tuple[str, ...] = ()) -> list[str]:
    found = []
    for path in paths:
        for number, line in enumerate(lines_of(path), 1):
            if re.search(pattern, line) and path.name not in but:
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    return found


def room_of(path: Path) -> str:
    """The folder of native/ that a file lies in."""
    return path.parent.relative_to(ROOT / "native").as_posix().replace(".", "")


SOURCES = tracked("*.c", "*.h", "*.py")
NATIVE = tracked("native/*.c", "native/*.h")


def test_lines_fit_and_files_are_a_sitting():
    """Given every source. Expect at most 100 columns and fewer than 600 lines."""
    wide = [
        f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"
        for path in SOURCES
        for number, line in enumerate(lines_of(path), 1)
        if len(line) > COLUMNS
    ]
    long = [
        f"{path.relative_to(ROOT)}: {len(lines_of(path))} lines"
        for path in SOURCES
        if len(lines_of(path)) >= FILE_LINES
    ]
    assert wide + long == []


def test_c_functions_fit_a_screen():
    """Given every C file. Expect each function, brace to brace, within 70 lines."""
    long = []
    for path in tracked("*.c", "*.h"):
        start = None
        for number, line in enumerate(lines_of(path), 1):
            if re.match(r"^\w.*\)\s*\{$|^\{$", line) or re.match(r"^    .*\)\s*\{$", line):
                start = number if start is None else start
            if line == "}" and start is not None:
                if number - start > FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{start}: {number - start} lines")
                start = None
            elif re.match(r"^\};", line):
                start = None
    assert long == []


def test_every_file_opens_with_its_idea():
    """Given every C and Python file with content. Expect a comment or docstring first."""
    bare = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.read_text().strip() and not path.read_text().startswith(("/*", '"""', "#!"))
    ]
    assert bare == []


def test_the_engine_does_no_io():
    """Given the engine's files. Expect no clock, chance, socket, thread or allocation."""
    engine = [path for path in NATIVE if room_of(path) in ENGINE]
    found = {what: places(engine, pattern) for what, pattern in ENGINE_FORBIDDEN.items()}
    assert {what: where for what, where in found.items() if where} == {}


def test_the_clock_is_read_where_time_is_passed_on():
    """Given the rooms but drive/, os/ and the data plane. Expect no look at a clock."""
    assert places([path for path in NATIVE if room_of(path) not in CLOCK_ROOMS], CLOCK) == []


def test_what_only_linux_has_stays_in_its_rooms():
    """Given the other rooms. Expect none of its headers, calls, or questions after the system; but
    one: DPDK is Linux's alone."""
    others = [path for path in NATIVE if room_of(path) not in OF_LINUX]
    assert places(others, LINUX, but=("transport_dpdk.c",)) == []


def wrong_includes(room: str, name: str, text: str) -> list[str]:
    """The lines of a file of this room that include what it may not know."""
    found = []
    for header in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.MULTILINE):
        other, _, own = header.rpartition("/")
        doors = ENGINE_DOORS if room in ("server", "client") else DOORS
        closed = own not in doors.get(other, {own})
        if other != room and (other not in ROOMS[room] or closed):
            found.append(f"{room}/{name} includes {header}")
    return found


def test_c_includes_follow_the_layers():
    """Given each include of ours. Expect a room of the table, and of it what others may know."""
    wrong = [
        line
        for path in NATIVE
        for line in wrong_includes(room_of(path), path.name, path.read_text())
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "room, header",
    [
        ("client", "server/server.h"),
        ("client", "server_state.h"),
        ("table", "server/session.h"),
        ("server", "table/store.h"),
        ("server", "transport/transport_dpdk.h"),
        ("client", "transport/url.h"),
        ("base", "protocol/wire.h"),
        ("drive", "client/client_state.h"),
        ("transport", "nowhere/wire.h"),
    ],
)
def test_an_include_across_the_layers_is_found(room, header):
    """Given an include that no room of its kind may have. Expect it named."""
    text = f'#include <stdint.h>\n#include "{header}"\n'
    assert wrong_includes(room, "a.c", text) == [f"{room}/a.c includes {header}"]


# The rooms of replay_server/, and what each may import: a room whole, or one module of it. What
# people import from the top is "face", what that stands on "base".
BASE = ("_native", "errors", "spec", "plans", "table", "returns", "stacking", "batch")
FACE = ("client", "server", "writer", "batches")
PYTHON_ROOMS = {
    "base": {"support"},
    "support": {"base"},
    "requests": {"base", "support"},
    "writing": {"base", "support", "requests"},
    "face": {"base", "support", "requests", "writing"}
    | {"observe.stats", "observe.measures", "serving.zmq_transport"},
    "observe": {"base", "support", "face", "training.programs"},
    "serving": {"base", "support", "face", "observe", "training.envs"},
    "training": {"base", "support", "requests", "face", "writing.anchors", "writing.autoreset"},
    "bench": {"base", "support", "face", "serving"},
    "integrations": {"base", "support", "face"},
}


def room_of_module(module: str) -> str:
    """The room of a module such as "writing.block", named below replay_server."""
    first = module.split(".")[0]
    return "base" if first in BASE else "face" if first in FACE else first


def imported(module: str, text: str) -> list[str]:
    """What a module of replay_server imports of it when it runs: "writing.block", "spec". A public
    name, of the package itself, is of the face."""
    tree = ast.parse(text)
    unseen = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if node in unseen:
            continue
        if isinstance(node, ast.ImportFrom):
            at = (node.module or "").split(".")
            if node.level:
                at = module.split(".")[: -node.level] + at
            elif at.pop(0) != "replay_server":
                continue
            at = ".".join(part for part in at if part)
            names = [f"{at}.{name.name}".strip(".") for name in node.names]
            found += [name if is_module(name) else at or "client" for name in names]
        elif isinstance(node, ast.Import):
            whole = [name.name.partition(".") for name in node.names]
            found += [rest or "client" for first, _, rest in whole if first == "replay_server"]
    return found


def is_module(name: str) -> bool:
    return (ROOT / "replay_server" / name.replace(".", "/")).with_suffix(".py").is_file()


def wrong_imports(module: str, text: str) -> list[str]:
    """The modules that this one imports and may not know."""
    room = room_of_module(module)
    may = {room, "_engine", *PYTHON_ROOMS[room]}
    return [
        f"{module} imports {other}"
        for other in imported(module, text)
        if room_of_module(other) not in may and other not in may
    ]


def test_python_imports_follow_the_rooms():
    """Given every module of replay_server but its commands. Expect imports of the table alone."""
    wrong = []
    for path in tracked("replay_server/*.py"):
        module = ".".join(path.relative_to(ROOT / "replay_server").with_suffix("").parts)
        if module not in ("__init__", "__main__", "entry", "_build"):
            wrong += wrong_imports(module, path.read_text())
    assert wrong == []


@pytest.mark.parametrize(
    "module, line, other",
    [
        ("requests.priorities", "from ..writing.writers import push_state", "writing.writers"),
        ("writing.block", "from ..client import Client", "client"),
        ("spec", "from . import client", "client"),
        ("spec", "from replay_server.client import Client", "client"),
        ("spec", "from replay_server import Client", "client"),
        ("integrations.sb3", "from replay_server.bench import machine", "bench.machine"),
        ("integrations.sb3", "import replay_server.serving.config as config", "serving.config"),
        ("observe.watch", "from ..bench import machine", "bench.machine"),
        ("batch", "def f():\n    from .requests import draws", "requests.draws"),
    ],
)
def test_an_import_across_the_rooms_is_found(module, line, other):
    """Given an import that no module of its room may have. Expect it named."""
    assert wrong_imports(module, line) == [f"{module} imports {other}"]


def modules_of(text: str) -> list[str]:
    """The modules that a program imports by their full names."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found.append(node.module or "")
        elif isinstance(node, ast.Import):
            found += [name.name for name in node.names]
    return found


def wrong_outside(folder: str, text: str) -> list[str]:
    """What a file outside replay_server imports and may not: examples, what users have; nobody,
    the benchmarks."""
    shown = re.compile(r"replay_server(\.integrations\.\w+)?$")
    inner = ("replay_server", "actor", "learner", "deploy", "benchmarks")
    return [
        name
        for name in modules_of(text)
        if name.split(".")[0] in (inner if folder == "examples" else ("benchmarks",))
        and not shown.match(name)
    ]


def test_who_imports_the_library_from_outside():
    """Given examples/ and the product. Expect examples with public names alone, and nobody that
    stands on benchmarks/; and an import of either kind to be found."""
    wrong = {
        path.relative_to(ROOT).as_posix(): wrong_outside(folder, path.read_text())
        for folder in ("examples", "actor", "learner", "deploy", "replay_server")
        for path in tracked(f"{folder}/*.py")
    }
    assert len(wrong) > 80 and {path: names for path, names in wrong.items() if names} == {}
    inside = "from replay_server.training.atari import make"
    assert wrong_outside("examples", inside) == ["replay_server.training.atari"]
    assert wrong_outside("actor", "import benchmarks.harness") == ["benchmarks.harness"]
    assert wrong_outside("actor", inside) == []


def circle(knows: dict[str, list[str]]) -> list[str]:
    """A module and those by which it comes to know itself; [] where none does."""
    for start in knows:
        trails = [[start]]
        seen = set()
        while trails:
            trail = trails.pop()
            for other in knows.get(trail[-1], ()):
                if other == start:
                    return [*trail, start]
                if other not in seen:
                    seen.add(other)
                    trails.append([*trail, other])
    return []


def test_no_module_imports_itself_by_way_of_others():
    """Given every import of replay_server, those inside of functions too. Expect no circle; and one
    that is made up to be found."""
    knows = {}
    for path in tracked("replay_server/*.py"):
        module = ".".join(path.relative_to(ROOT / "replay_server").with_suffix("").parts)
        knows[module] = [name for name in imported(module, path.read_text()) if name != "__init__"]
    assert len(knows) > 60 and circle(knows) == []
    assert circle({"a": ["b"], "b": ["c"], "c": ["d", "b"]}) == ["b", "c", "b"]


def test_pages_fit():
    """Given every page. Expect at most 100 columns, but in rows of tables and behind links."""
    wide = [
        f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"
        for path in tracked("*.md")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 100 and not line.lstrip().startswith("|") and "](" not in line
    ]
    assert wide == []


GLOSSARY = ROOT / "docs" / "glossary.md"


def words_not_said():
    """What docs/glossary.md names in its last column: other words for its terms."""
    rows = [
        line.strip("| ").split("|") for line in GLOSSARY.read_text().splitlines() if "|" in line
    ]
    return [
        word.strip()
        for row in rows[2:]
        if len(row) == 3 and row[2].strip()
        for word in row[2].split(",")
    ]


def other_words(text):
    """Lines of a page that use one of them; code and commands are left out."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return [word for word in words_not_said() if re.search(rf"\b{word}s?\b", prose, re.IGNORECASE)]


def test_pages_keep_to_the_glossary():
    """Given README and docs/. Expect one term for one thing, as docs/glossary.md has it."""
    pages = [ROOT / "README.md", *(path for path in tracked("docs/*.md") if path != GLOSSARY)]
    assert {page.name: found for page in pages if (found := other_words(page.read_text()))} == {}
    assert other_words("Each collector is told of it.") == ["collector", "told"]
    terms = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text(), re.MULTILINE)[2:]
    assert terms == sorted(terms) and len(terms) > 30


def test_a_functions_brace_stands_behind_its_head():
    """Given all C. Expect no brace on a line of its own below the end of a head."""
    found = []
    for path in tracked("*.c", "*.h"):
        lines = path.read_text().split("\n")
        braces = [number for number, line in enumerate(lines) if line == "{"]
        found += [f"{path}:{at + 1}" for at in braces if lines[at - 1].endswith(")")]
    assert found == []


def test_only_transports_know_what_they_carry_over():
    """Given the whole tree. Expect rte_ only in the dpdk transport, zmq only in its transport and
    beneath the edges of plans."""
    not_dpdk = [path for path in NATIVE if path.parent != ROOT / "native/dpdk"]
    zmq_users = ("zmq_transport.py", "test_zmq.py", "pickle_zmq.py")
    zmq_users += ("asking.py", "workers.py")  # edges that a plan cuts
    assert places(not_dpdk, r"\brte_\w|<rte_") == []
    assert places(NATIVE, r"<zmq") == []
    assert places(tracked("*.py"), r"^\s*(import|from) zmq\b", but=zmq_users) == []


def test_python_imports_follow_the_layers():
    """Given the packages. Expect torch in what trains only, one importer of the extension, and the
    actor and the learner beside each other: what they share is replay_server/training/. What places
    them knows their command lines, but for what is both in one process."""
    face = tracked("replay_server/*.py")
    shared = ("training/networks.py", "training/weights.py", "training/device.py")
    shared += ("training/torch_envs.py",)
    library = [path for path in face if not str(path).endswith(shared)]
    both = ("sync.py", "together.py")
    places_them = [path for path in tracked("deploy/*.py") if path.name not in both]
    torch = places(library + places_them, r"^(import|from) torch\b")
    torch += places(
        library, r"^\s*(import|from) .*\b(networks|training\.weights|training\.device)\b"
    )
    learning = places(face, r"^\s*(import|from) (actor|learner|deploy)\b")
    engine = places(face, r"_engine\b.*import|import.*_engine\b", but=("_native.py", "_build.py"))
    loops = places(tracked("actor/*.py"), r"(import|from) (learner|deploy)\b")
    loops += places(tracked("learner/*.py"), r"(import|from) (actor|deploy)\b")
    loops += places(places_them, r"^\s*(import|from) (actor|learner)\b")
    assert torch + learning + engine + loops == []


def test_nothing_hides_failures_and_nothing_is_left_over():
    """Given every source. Expect no bare except, pickle on our paths, leftovers or empty tests."""
    python = tracked("*.py")
    own = (Path(__file__).name,)
    found = places(SOURCES, LEFTOVERS, but=own)
    found += places(python, r"^\s*except\s*:", but=own)
    found += places(
        tracked("replay_server/*.py", "actor/*.py", "learner/*.py", "deploy/*.py"),
        r"^\s*(import|from) (pickle|marshal|shelve)\b",
    )
    found += places(tracked("tests/*.py"), r"\bassert True\b", but=own)
    found += places(NATIVE, r"\bNDEBUG\b")
    assert found == []


PRODUCT = ("native", "replay_server", "actor", "learner", "deploy", "benchmarks")
A_FILE = re.compile(
    r"`((?:[\w.-]+/)*"
    r"(?:[\w.-]+\.(?:c|h|py|mk|sh|md|html|jsonl?|toml|yml|env|service)|Containerfile))`"
)


def files_of_the_architecture():
    """The files that ARCHITECTURE.md lists. A name stands in the folder of the one before it, which
    a heading, a room in bold or a name with its folder changes; or in the folder of the heading."""
    listed, section, folder = set(), ROOT, ROOT
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Every file, in reading order")[2]
    for line in text.splitlines():
        if line.startswith("### "):
            named = re.search(r"`([\w/]+)/`", line)
            section = folder = ROOT / named[1] if named else section
        room = re.match(r"\| \*\*`(\w+)/`\*\*", line)
        folder = section / room[1] if room else folder
        for name in A_FILE.findall(line.split(" | ")[0]) if line.startswith("| ") else []:
            path = next(
                (at / name for at in (folder, section, ROOT) if (at / name).is_file()),
                folder / name,
            )
            folder = path.parent
            listed.add(path.relative_to(ROOT).as_posix())
    return listed


def test_every_file_stands_in_the_architecture():
    """Given ARCHITECTURE.md. Expect each source of the product, and all of deploy/, to be listed in
    its own folder, and what is listed to be there; a header may stand with its source."""
    listed = files_of_the_architecture()
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in tracked(
            *(f"{folder}/*.{kind}" for folder in PRODUCT for kind in ("c", "h", "py")),
            "deploy/*",
        )
        if path.read_text().strip()
    }
    told = listed | {name[:-1] + "h" for name in listed if name.endswith(".c")}
    missing = sorted(name for name in sources - told if not name.endswith("__init__.py"))
    assert missing == []
    assert sorted(name for name in listed if not (ROOT / name).is_file()) == []


def test_every_known_bug_still_applies():
    """Given the patches of known bugs and canaries. Expect each to apply to the tree as it is."""
    patches = tracked("tests/known_bugs/*.patch", "tests/canaries/*.patch")
    stale = [
        patch.name
        for patch in patches
        if subprocess.run(
            ["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, check=False
        ).returncode
    ]
    assert patches and stale == []


def goals_missing(text: str) -> list[str]:
    """The tests of a Python file whose docstring does not say what is given and expected."""
    return [
        f"{node.lineno}: {node.name}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not re.search(r"\bGiven\b.*\bExpect\b", ast.get_docstring(node) or "", re.DOTALL)
    ]


def test_every_test_says_its_goal():
    """Given the tests. Expect "Given ... Expect ..." in each of Python, a C file that opens with
    what it shows and says or names what its groups hold; and a test without a goal to be found."""
    missing = {path.name: goals_missing(path.read_text()) for path in tracked("tests/*.py")}
    assert {name: tests for name, tests in missing.items() if tests} == {}
    programs = [path for path in tracked("tests/*.c") if path.name.startswith("test_")]
    texts = {path.name: path.read_text() for path in programs}
    assert len(texts) > 90
    assert [name for name, text in texts.items() if not text.startswith("/* ")] == []
    said = r"\bGiven\b|\bcheck_group\("
    assert [name for name, text in texts.items() if not re.search(said, text)] == []
    assert goals_missing('def test_a():\n    """Given a."""\n') == ["1: test_a"]
    assert goals_missing('def test_a():\n    """Given a. Expect\n    b."""\n') == []


def test_the_table_of_tests_names_what_is_there():
    """Given tests/README.md. Expect each file, bug and folder it names to be there."""
    text = (ROOT / "tests/README.md").read_text()
    files = re.findall(r"`(\w+/\w+\.(?:py|c))`", text)
    named = re.findall(r"\| `(\w+)` \|$", text, re.MULTILINE)
    bugs = [f"known_bugs/{name}.patch" for name in named]
    folders = re.findall(r"`(\w+)/`", text)
    assert len(files) > 40 and len(bugs) > 20
    assert [name for name in files + bugs if not (ROOT / "tests" / name).is_file()] == []
    there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - {"__pycache__"}
    assert there - {"corpus", "package"} == set(folders)


def names_of_nothing(texts: list[str], extra: set[str]) -> list[str]:
    """The names of ours that only comments have; `rp_writer_*` means all that begin so."""
    comment = re.compile(r"/\*.*?\*/", re.DOTALL)
    words = extra.union(*(re.findall(r"\w+", comment.sub(" ", text)) for text in texts))
    comments = "\n".join(said for text in texts for said in comment.findall(text))
    named = set(re.findall(r"\b(?:rp|RP)_\w+\*?", comments))
    return sorted(
        name
        for name in named
        if not (any(w.startswith(name[:-1]) for w in words) if name[-1] == "*" else name in words)
    )


def test_comments_name_what_is_there():
    """Given the comments of every C file. Expect each RP_... and rp_... in them to be in code."""
    status = (ROOT / "native/protocol/status.h").read_text()
    rows = re.findall(r"\bX\((\w+),", status)
    made = {prefix + row for row in rows for prefix in ("RP_", "RP_COUNT_")}
    assert names_of_nothing([path.read_text() for path in tracked("*.c", "*.h")], made) == []
    text = "/* rp_gone() and rp_is(), rp_i*, rp_g*: RP_GONE */ int rp_is(void);"
    assert names_of_nothing([text], set()) == ["RP_GONE", "rp_g*", "rp_gone"]


def test_the_tree_speaks_of_no_machine():
    """Given every tracked text. Expect no path of one machine."""
    texts = [path for path in tracked("*") if path.suffix in {".md", ".py", ".c", ".h", ".toml"}]
    assert places(texts, r"(^|[^\w.])/(home|work|farm)/\w", but=("test_tidy.py",)) == []


@pytest.mark.parametrize("tool", [["check"], ["format", "--check"]])
def test_ruff_agrees(tool: list[str]):
    """Given the Python. Expect ruff to find nothing."""
    ruff = [sys.executable, "-m", "ruff", *tool, "."]
    done = subprocess.run(ruff, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_no_variable_has_a_value_in_two_makefiles():
    """Given the Makefile and its parts. Expect each variable set in one, where it would be wrong in
    the other; SEED is the same in both."""
    found: dict[str, set[str]] = {}
    for path in tracked("Makefile", "*.mk"):
        for name in re.findall(r"^([A-Z_]+)\s*(?:\?|:)?=", path.read_text(), re.M):
            found.setdefault(name, set()).add(path.name)
    found.pop("SEED")
    assert {name: sorted(files) for name, files in found.items() if len(files) > 1} == {}
