"""Made-up hosts for test_doctor.py and test_nic.py: a sysfs, procfs and libraries in a folder.

The ELF files are real ones: gcc builds them, with the records that DPDK's drivers carry.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

I40E, MLX5, REALTEK = (0x8086, 0x1583), (0x15B3, 0x1017), (0x10EC, 0x8168)
KMODS = {
    "net_i40e": "* igb_uio | uio_pci_generic | vfio-pci",
    "mlx5_eth": "* ib_uverbs & mlx5_core & mlx5_ib",
}
IDS = {"net_i40e": [[*I40E, 65535, 65535]], "mlx5_eth": [[*MLX5, 65535, 65535]]}


def compile_object(target: Path, source: str, *options: str) -> Path:
    """A shared object of one source, without libc."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", str(target)]
    # Options after the source: libraries are looked at in that order.
    subprocess.run([*command, "-x", "none", *options], input=source, text=True, check=True)
    return target


def compile_eal(folder: Path, abi: int = 23) -> Path:
    """A librte_eal.so of this ABI that has one function."""
    name = f"librte_eal.so.{abi}"
    source = "int rte_eal_init(void); int rte_eal_init(void) { return 0; }"
    return compile_object(folder / name, source, f"-Wl,-soname,{name}")


def record(name: str) -> str:
    """The JSON of a driver's record."""
    return json.dumps({"name": name, "kmod": KMODS[name], "pci_ids": IDS[name]})


def compile_driver(folder: Path, name: str, eal: Path) -> Path:
    """A driver's library, as DPDK's packages have it."""
    text = json.dumps("PMD_INFO_STRING= " + record(name))
    source = f"__attribute__((used)) static const char info[] = {text};"
    target = folder / f"librte_net_{name.rsplit('_', 1)[-1]}.so.23.0"
    return compile_object(target, source, "-Wl,--no-as-needed", str(eal))


class Tree:
    """A host below `root`, at first with two CPUs, one node and no more."""

    def __init__(self, root: Path, nodes: dict[int, str] | None = None) -> None:
        self.root = root
        self.nodes = nodes or {0: "0-1"}
        last = max(int(words.split("-")[-1]) for words in self.nodes.values() if words)
        self.put("sys/devices/system/cpu/online", f"0-{last}")
        self.put("proc/cpuinfo", "processor : 0\nmodel name\t: Test CPU\n")
        self.put("proc/self/limits", "Max locked memory  8388608  8388608  bytes\n")
        self.put("proc/mounts", "proc /proc proc rw 0 0\n")
        self.put("proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric Mask\n")
        for node, words in self.nodes.items():
            self.put(f"sys/devices/system/node/node{node}/cpulist", words)

    def put(self, name: str, content: str = "") -> Path:
        """Writes a file, with its folders."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def link(self, name: str, target: str) -> None:
        """A link, relative to where it lies, to a path below the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(self.root / target, path.parent))

    def pages(self, size_kb: int, on: dict[int, int]) -> None:
        """Hugepages of one size, all free: how many on each node."""
        name = f"hugepages-{size_kb}kB"
        places = {f"sys/kernel/mm/hugepages/{name}": sum(on.values())}
        for node, count in on.items():
            places[f"sys/devices/system/node/node{node}/hugepages/{name}"] = count
        for place, count in places.items():
            self.put(f"{place}/nr_hugepages", str(count))
            self.put(f"{place}/free_hugepages", str(count))

    def mount(self, options: str = "rw,pagesize=2M") -> None:
        """hugetlbfs at its usual place."""
        (self.root / "dev/hugepages").mkdir(parents=True)
        self.put("proc/mounts", f"hugetlbfs /dev/hugepages hugetlbfs {options} 0 0\n")

    def modules(self, *names: str) -> None:
        """Loaded kernel modules."""
        for name in names:
            (self.root / "sys/module" / name).mkdir(parents=True)

    def installable(self, *names: str) -> None:
        """Kernel modules that lie ready."""
        self.put("proc/sys/kernel/osrelease", "6.1.0-test\n")
        listed = "".join(f"kernel/drivers/{name}.ko.xz: \n" for name in names)
        self.put("lib/modules/6.1.0-test/modules.dep", listed)

    def nic(
        self,
        address: str = "0000:03:00.0",
        ids: tuple[int, int] = I40E,
        driver: str = "i40e",
        interface: str = "ens1",
        node: int = 0,
        group: str = "",
        kind: str = "0x020000",
    ) -> None:
        """A network card; without an interface name it has none."""
        device = f"sys/bus/pci/devices/{address}"
        for name, value in (("vendor", ids[0]), ("device", ids[1])):
            self.put(f"{device}/{name}", f"0x{value:04x}")
            self.put(f"{device}/subsystem_{name}", f"0x{value:04x}")
        self.put(f"{device}/class", kind)
        self.put(f"{device}/numa_node", str(node))
        self.put(f"{device}/driver_override", "(null)")
        if driver:
            (self.root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            self.link(f"{device}/driver", f"sys/bus/pci/drivers/{driver}")
        if interface:
            (self.root / device / "net" / interface).mkdir(parents=True)
            self.put(f"sys/class/net/{interface}/speed", "40000")
            self.put(f"sys/class/net/{interface}/operstate", "up")
        if group:
            self.link(f"{device}/iommu_group", f"sys/kernel/iommu_groups/{group}")
            self.link(f"sys/kernel/iommu_groups/{group}/devices/{address}", device)
            self.put(f"dev/vfio/{group}")

    def default_route(self, interface: str) -> None:
        """IPv4's default route leaves here."""
        with (self.root / "proc/net/route").open("a") as file:
            file.write(f"{interface} 00000000 0101A8C0 0003 0 0 0 00000000 0 0 0\n")
