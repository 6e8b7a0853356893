"""What an installation is made of, looked at without installing: seconds here, minutes there.

`make wheel` and `make test-install` look at the built files themselves; what is wanted in them is
said once, in tests/package/wanted.py.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import replay_server
from replay_server.__main__ import EXIT_USAGE, main
from replay_server.server import Named, ServerOptions
from replay_server.support.toml import tomllib
from replay_server.training import programs

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = {"train": "torch", "atari": "ale-py", "zmq": "pyzmq", "metrics": "prometheus-client"}
EXTRAS |= {"doctor": "pyelftools"}
HEAVY = {"torch", "gymnasium", "zmq", "prometheus_client", "ale_py", "matplotlib"}
PYTHON = sorted(path for path in ROOT.rglob("*.py") if not {".venv", "build"} & {*path.parts})


def load(path: Path):
    """A module by its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


wanted = load(ROOT / "tests" / "package" / "wanted.py")


def setup(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_a_wheel_takes_the_package_and_the_programs_and_no_more(tmp_path):
    """Given what goes into a wheel beside the core. Expect each file wanted and no other."""
    setup("build_py", "--build-lib", str(tmp_path))
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    found = {name for name in found if not name.endswith(".pyc")}
    assert found ^ (wanted.in_wheel() - {wanted.ENGINE}) == set()
    assert "replay_server/py.typed" in found
    assert {name.split("/")[0] for name in found} == {"replay_server"}


def test_an_sdist_takes_all_that_building_needs(tmp_path):
    """Given the list of an sdist. Expect sources, headers, tables, documents; no tests."""
    setup("egg_info", "--egg-base", str(tmp_path))
    listed = next(tmp_path.glob("*.egg-info/SOURCES.txt")).read_text().split()
    found = {name for name in listed if ".egg-info" not in name and not name.startswith("tests/")}
    assert (found | {"setup.cfg"}) ^ (wanted.in_sdist() | {"setup.cfg"}) == set()
    assert {"native/base/power_tables.h", "native/replay.h", "native/base/power_tables.py"} <= found


def test_an_editable_install_is_a_path_and_no_import_hook(tmp_path):
    """Given what `pip install -e` builds of a copy, its core left out. Expect one line that names
    the copy: type checkers read paths, and run no hooks."""
    folders = ("replay_server", "actor", "learner", "deploy")
    sources = [path for name in folders for path in (ROOT / name).rglob("*.py")]
    for source in [*ROOT.glob("*.*"), *sources]:
        if source.is_file():
            copy = tmp_path / "tree" / source.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    code = (
        "import setuptools, sys\n"
        "real = setuptools.setup\n"
        "setuptools.setup = lambda cffi_modules, **more: real(**more)\n"
        f"sys.argv = ['setup.py', '-q', 'editable_wheel', '--dist-dir', {str(tmp_path)!r}]\n"
        "exec(compile(open('setup.py').read(), 'setup.py', 'exec'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "tree", capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as whole:
        names = [name for name in whole.namelist() if ".dist-info/" not in name]
        assert len(names) == 1 and names[0].endswith(".pth"), names
        assert whole.read(names[0]).decode().split() == [str(tmp_path / "tree")]


def test_metadata_says_what_the_documents_say():
    """Given pyproject.toml. Expect the page's extras, one version, Python 3.10, two machines."""
    project, page = PROJECT["project"], (ROOT / "docs" / "getting-started.md").read_text()
    for extra, package in EXTRAS.items():
        assert any(need.startswith(package) for need in project["optional-dependencies"][extra])
        assert f"[{extra}]" in page
    assert project["requires-python"] == ">=3.10"
    plain = {re.match(r"[\w-]+", need).group() for need in project["dependencies"]}
    assert plain == {"numpy", "cffi", "tomli"}
    assert "python_version < '3.11'" in next(n for n in project["dependencies"] if "tomli" in n)
    told_twice = [
        str(path.relative_to(ROOT))
        for path in PYTHON
        if re.search(r"^__version__|\bversion=[\"']\d", path.read_text(), re.MULTILINE)
    ]
    assert told_twice == []
    built = PROJECT["tool"]["cibuildwheel"]
    assert built["build"].startswith("cp310-") and set(built["archs"]) == {"x86_64", "aarch64"}


@pytest.mark.parametrize(
    "folder", ["replay_server", "actor", "learner", "deploy", "benchmarks", "tests", "."]
)
def test_every_source_is_python_3_10(folder):
    """Given the grammar of Python 3.10. Expect it to read every file; no tomllib without a way."""
    found = sorted((ROOT / folder).glob("*.py" if folder == "." else "**/*.py"))
    assert found
    for path in found:
        tree = ast.parse(path.read_text(), str(path), feature_version=(3, 10))
        guarded = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.Try)
            or (isinstance(node, ast.If) and "version_info" in ast.unparse(node.test))
            for inner in ast.walk(node)
        }
        bare = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Import) and node not in guarded
            for name in node.names
            if name.name == "tomllib"
        ]
        assert bare == [], f"{path.relative_to(ROOT)} imports tomllib, which 3.10 lacks"


def test_importing_the_client_imports_little():
    """Given an environment that has everything. Expect numpy, cffi and the standard library."""
    code = (
        "import sys\nfrom replay_server import Batch, Client, Server, Table, Writer, spec_from\n"
        "names = {name.split('.')[0] for name in sys.modules} - {'__main__'}\n"
        f"print(*sorted((names - sys.stdlib_module_names) | (names & {HEAVY!r})))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["_cffi_backend", "numpy", "replay_server"], done.stderr


def test_a_program_that_lacks_its_packages_says_which(monkeypatch, capsys):
    """Given no torch. Expect one sentence with the command that installs it, and code 2."""
    there = importlib.util.find_spec
    monkeypatch.setattr(
        programs, "find_spec", lambda name: None if name == "torch" else there(name)
    )
    assert main(["demo"]) == EXIT_USAGE
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1 and "needs torch," in said
    assert "pip install 'replay-server[train]'" in said


def test_a_program_finds_its_own_packages_first(tmp_path):
    """Given a working folder with an `actor` of its own. Expect ours, by the installed name."""
    (tmp_path / "actor").mkdir()
    (tmp_path / "actor" / "__init__.py").write_text("raise SystemExit('not ours')\n")
    done = subprocess.run(
        [sys.executable, "-m", "replay_server", "actor", "--help"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and "Which actor this is" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("compiler", "headers", "said"),
    [
        ("no-such-cc", True, "there is no C compiler 'no-such-cc'"),
        ("false", False, "Python's headers"),
        ("false", True, "'false' could not compile it"),
    ],
)
def test_a_build_that_cannot_be_says_why(tmp_path, compiler, headers, said):
    """Given no compiler, no headers, a compiler that fails. Expect one sentence with the advice."""
    include = tmp_path / "include"
    include.mkdir()
    if headers:
        (include / "Python.h").touch()
    code = (
        "import sysconfig, sys\n"
        f"sysconfig.get_path = lambda name, *rest, **more: {str(include)!r}\n"
        f"sys.argv = ['setup.py', '-q', 'build_ext', '--build-lib', {str(tmp_path)!r}, "
        f"'--build-temp', {str(tmp_path)!r}]\n"
        "exec(compile(open('setup.py').read(), 'setup.py', 'exec'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"CC": compiler},
        capture_output=True,
        text=True,
        timeout=60,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert last.startswith("replay-server: its C core was not built") and said in last
    assert "apt-get install gcc python3-dev" in last


def test_type_checkers_see_every_name_and_an_import_loads_none():
    """Given replay_server/__init__.py. Expect what type checkers read to be the lazy table, name by
    name, each said to be exported; and an import to load neither NumPy nor a module of ours."""
    tree = ast.parse((ROOT / "replay_server" / "__init__.py").read_text())
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    )
    *imports, own = block.body
    assert ast.unparse(own) == "__version__: str"
    seen = {}
    for line in imports:
        assert all(name.name == name.asname for name in line.names), ast.unparse(line)
        seen.setdefault(line.module, []).extend(name.name for name in line.names)
    table = {home: sorted(names) for home, names in replay_server._HOMES.items()}
    assert {home: sorted(names) for home, names in seen.items()} == table
    code = "import replay_server, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    names = loaded.stdout.split()
    assert "replay_server" in names and "numpy" not in names
    assert not [name for name in names if name.startswith("replay_server.")]


def test_type_checkers_know_every_option_of_a_server():
    """Given ServerOptions. Expect Server's keywords to be the same, of the same types, but url."""
    options = dict(ServerOptions.__annotations__)
    assert options.pop("url") == "str"
    named = {name: each.__forward_arg__ for name, each in Named.__annotations__.items()}
    assert named == options
