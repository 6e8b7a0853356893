"""What ELF files say about themselves: the NICs that DPDK's drivers take, and our own objects.

A DPDK driver carries records `PMD_INFO_STRING= {json}` in its read-only data: its name, the PCI
ids it takes (vendor, device, subsystem's two; 65535 is any) and the kernel modules it wants:
"* a | b" is one of them, "* a & b" all of them, the card staying with its kernel driver.

Our objects are `_engine*.so` and, in a build with the DPDK data plane, `_dpdk.so`: where the core
looks for it, and by the symbol it asks for (transport/transport_dpdk.h). A data plane that takes
cards (`port=`), and not virtual devices alone, exports `rp_dpdk_takes_cards` too. pyelftools (the
extra [doctor]) reads both kinds. A file that is no ELF file is reported so, and raises nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANY_ID = 0xFFFF
MARK = b"PMD_INFO_STRING= "
ABI = re.compile(r"librte_\w+\.so\.(\d+)")
DATA_PLANE, SYMBOL, VARIABLE = "_dpdk.so", "rp_dpdk_object", "REPLAY_DPDK"
CARDS = "rp_dpdk_takes_cards"
INSTALL = "pip install 'replay-server[doctor]'"
DRIVER_FOLDERS = (
    "usr/lib/*/dpdk/pmds-*",
    "usr/lib/dpdk/pmds-*",
    "usr/lib64/dpdk/pmds-*",
    "usr/local/lib/*/dpdk/pmds-*",
    "usr/local/lib*/dpdk/pmds-*",
)
LIBRARY_FOLDERS = ("lib", "usr/lib", "lib64", "usr/lib64", "usr/local/lib", "usr/local/lib64")


@dataclass(frozen=True)
class Driver:
    """A poll-mode driver: its record, the file it lies in, and the DPDK ABI of that file."""

    name: str
    path: str
    abi: str
    kmod: str
    pci_ids: tuple[tuple[int, int, int, int], ...]

    def takes(self, ids: tuple[int, int, int, int]) -> bool:
        """Whether one of its PCI ids is this card's."""
        return any(
            all(mine in (ANY_ID, theirs) for mine, theirs in zip(entry, ids, strict=True))
            for entry in self.pci_ids
        )

    @property
    def bifurcated(self) -> bool:
        """The card stays with its kernel driver; nothing is bound."""
        return "&" in self.kmod

    @property
    def modules(self) -> tuple[str, ...]:
        """Kernel modules: all of them where bifurcated, else one of them."""
        return tuple(re.findall(r"[\w-]+", self.kmod))


@dataclass(frozen=True)
class Object:
    """One of our shared objects. `trouble` is "" or why it could not be read at all."""

    path: str
    trouble: str = ""
    needed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # libraries that no folder here has, its libraries' own too
    executable_stack: bool = False
    dpdk: str = ""  # "" where DPDK is not linked in; else "shared" or "static"
    transport: bool = False  # it has what the core asks a data plane for
    cards: bool = False  # it takes PCI cards
    abi: str = ""

    @property
    def sound(self) -> bool:
        """It can be loaded here."""
        return not self.trouble and not self.missing


def release(abi: str) -> str:
    """The long-term release of a DPDK ABI: 23 is 22.11, since each November's opens the next."""
    return f"{int(abi) - 1}.11" if abi.isdigit() else "unknown"


def readable() -> bool:
    """Whether pyelftools is here."""
    try:
        import elftools  # noqa: F401 (asked is only whether it imports)
    except ImportError:
        return False
    return True


def _open(path: Path, look: Any) -> Any:
    """look(ELFFile) for the file at `path`; OSError or ValueError where it is none."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        try:
            return look(ELFFile(file))
        except OSError:
            raise
        except Exception as error:  # a damaged file makes pyelftools raise anything
            raise ValueError(f"not a sound ELF file ({type(error).__name__})") from error


def records(data: bytes) -> list[dict[str, Any]]:
    """The PMD_INFO records in a section; one that is no JSON is passed over."""
    found = []
    for part in data.split(MARK)[1:]:
        try:
            record = json.loads(part.split(b"\0", 1)[0])
        except ValueError:
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def _driver(record: dict[str, Any], path: Path, abi: str) -> Driver:
    listed = record.get("pci_ids")
    entries = [
        tuple(entry)
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, list)
        and len(entry) == 4
        and all(isinstance(part, int) for part in entry)
    ]
    name, kmod = str(record.get("name", "unnamed")), str(record.get("kmod", ""))
    return Driver(name, str(path), abi, kmod, tuple(entries))


def drivers_in(path: Path) -> list[Driver]:
    """The drivers of one library; ValueError or OSError where it cannot be read."""

    def look(elf: Any) -> list[Driver]:
        section = elf.get_section_by_name(".rodata")
        abi = _abi(_dynamic(elf, "DT_NEEDED"))
        data = section.data() if section is not None else b""
        return [_driver(record, path, abi) for record in records(data)]

    return _open(path, look)


def driver_files(folders: list[Path]) -> list[Path]:
    """The network drivers' libraries in these folders, each once."""
    paths = (path for folder in folders for path in folder.glob("librte_net_*.so*"))
    # os.path, since Path raises where a link leads back to itself or a folder is closed to us.
    return sorted({Path(os.path.realpath(path)) for path in paths if os.path.isfile(path)})


def driver_folders(root: Path) -> list[Path]:
    """Where DPDK's packages put drivers."""
    return sorted({path for pattern in DRIVER_FOLDERS for path in root.glob(pattern)})


def drivers(paths: list[Path]) -> tuple[list[Driver], list[str]]:
    """(drivers in these files, "FILE: why" for each that could not be read)."""
    found: list[Driver] = []
    unread: list[str] = []
    for path in paths:
        try:
            found.extend(drivers_in(path))
        except (OSError, ValueError) as error:
            unread.append(f"{path}: {error}")
    return found, unread


def _dynamic(elf: Any, tag: str) -> tuple[str, ...]:
    """The strings of one tag of the dynamic section: needed, soname, rpath, runpath."""
    attribute = tag.removeprefix("DT_").lower()
    section = elf.get_section_by_name(".dynamic")
    if section is None:
        return ()
    return tuple(
        getattr(entry, attribute) for entry in section.iter_tags() if entry.entry.d_tag == tag
    )


def _abi(needed: tuple[str, ...]) -> str:
    """The DPDK ABI that libraries of these names have; "" where none is DPDK's."""
    return next((found[1] for name in needed if (found := ABI.fullmatch(name))), "")


def _stack(elf: Any) -> bool:
    """Whether loading it makes the stack executable: said so, or nothing said."""
    flags = [part["p_flags"] for part in elf.iter_segments() if part["p_type"] == "PT_GNU_STACK"]
    return not flags or bool(flags[0] & 1)


def _has(elf: Any, wanted: str, *tables: str) -> bool:
    """Whether it defines this symbol."""
    for name in tables:
        table = elf.get_section_by_name(name)
        for symbol in (table.get_symbol_by_name(wanted) if table else None) or []:
            if symbol["st_shndx"] != "SHN_UNDEF":
                return True
    return False


def library_folders(root: Path) -> list[Path]:
    """Where the loader looks, without its cache: the usual places and ld.so.conf.d."""
    found = [root / name for name in LIBRARY_FOLDERS]
    for base in ("lib", "usr/lib"):
        found.extend(sorted((root / base).glob("*-linux-gnu*")))
    for file in sorted((root / "etc/ld.so.conf.d").glob("*.conf")):
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        found.extend(root / line.strip().lstrip("/") for line in lines if line.startswith("/"))
    return found


def _wants(path: Path) -> tuple[tuple[str, ...], list[Path]]:
    """(libraries it needs, folders it names itself)."""

    def look(elf: Any) -> tuple[tuple[str, ...], list[Path]]:
        own = _dynamic(elf, "DT_RUNPATH") + _dynamic(elf, "DT_RPATH")
        here = os.path.dirname(os.path.realpath(path))
        places = [part for words in own for part in words.split(":") if part]
        return _dynamic(elf, "DT_NEEDED"), [
            Path(part.replace("$ORIGIN", here).replace("${ORIGIN}", here)) for part in places
        ]

    return _open(path, look)


def _missing(path: Path, folders: list[Path]) -> tuple[str, ...]:
    """Libraries that this object or one of its libraries needs and no folder has."""
    seen: set[str] = set()
    missing: list[str] = []
    waiting: list[Path] = [path]
    while waiting:
        needed, own = _wants(waiting.pop())
        for name in needed:
            if name in seen:
                continue
            seen.add(name)
            place = next((f / name for f in [*own, *folders] if os.path.isfile(f / name)), None)
            if place is None:
                missing.append(name)
            else:
                waiting.append(place)
    return tuple(sorted(missing))


def look_at(path: Path, root: Path) -> Object:
    """Reads the headers of one of our objects."""

    def look(elf: Any) -> Object:
        needed = _dynamic(elf, "DT_NEEDED")
        abi = _abi(needed)
        static = _has(elf, "rte_eal_init", ".symtab", ".dynsym")
        return Object(
            str(path),
            needed=needed,
            missing=_missing(path, library_folders(root)),
            executable_stack=_stack(elf),
            dpdk="shared" if abi else "static" if static else "",
            transport=_has(elf, SYMBOL, ".dynsym"),
            cards=_has(elf, CARDS, ".dynsym"),
            abi=abi,
        )

    try:
        return _open(path, look)
    except (OSError, ValueError) as error:
        return Object(str(path), trouble=str(error))


def own_objects(package: Path) -> Iterator[tuple[str, Path]]:
    """("core" or "data plane", path) of each of our objects in the package's folder."""
    for kind, pattern in (("core", "_engine*.so"), ("data plane", DATA_PLANE)):
        for path in sorted(package.glob(pattern)):
            yield kind, path
