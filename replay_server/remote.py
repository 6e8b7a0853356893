"""A table as a client sees it: what the server told, and the layout rebuilt from it.

`RemoteTable` holds facts that stay (columns, plans, limits) and asks for those that move (size,
limiter). The epoch is that of the moment it was looked up: a table that was reset, or a server that
restarted, has another one, and the client looks again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._native import ffi, lib
from .errors import SpecMismatch
from .spec import Spec
from .table import Layout, layout_of


class RemoteTable:
    """One table of a server; made by `Client.table`. `len` is its drawable items now."""

    def __init__(self, client: Any, raw: Any, document: bytes, incarnation: int) -> None:
        self._client, self.raw, self.incarnation = client, raw, incarnation
        self.name = _native.name_of(raw.name)
        self.layout: Layout = layout_of(document)
        self.number, self.epoch, self.capacity = raw.number, raw.epoch, raw.capacity
        self.alpha, self.min_size = raw.alpha, raw.min_size
        told = tuple(raw.item_bytes[i] for i in range(raw.plan_count))
        built = tuple(plan.item_bytes for plan in self.layout.plans)
        if told != built or raw.step_bytes != self.spec.record_size:
            raise SpecMismatch(
                f"table {self.name!r}: the server sends items of {told} bytes and steps of "
                f"{raw.step_bytes}, its own document means {built} and {self.spec.record_size}"
            )

    @property
    def spec(self) -> Spec:
        return self.layout.spec

    @property
    def plans(self) -> dict[str, Any]:
        """{name: plan}."""
        return {plan.name: plan.plan for plan in self.layout.plans}

    @property
    def ahead(self) -> int:
        """How far the table's plans look ahead of an anchor."""
        return self.layout.ahead

    def expect(self, spec: Spec) -> None:
        """SpecMismatch, naming columns, where `spec` is not what the table stores."""
        if lines := spec.differences(self.spec):
            raise SpecMismatch(
                f"table {self.name!r} stores other columns ('theirs') than expected ('mine'): "
                + "; ".join(lines)
            )

    def info(self, timeout: float | None = None) -> dict[str, Any]:
        """The table as it is now: count, head, total mass, inserted, sampled, limiter."""
        raw = self._client.table_info(self.name, timeout)
        names = ("count", "head", "total", "inserted", "sampled", "min_size", "capacity", "epoch")
        limits = ("samples_per_insert", "error_min", "error_max", "alpha", "writers_max")
        return {name: getattr(raw, name) for name in (*names, *limits)}

    def __len__(self) -> int:
        return self.info()["count"]

    def __repr__(self) -> str:
        return f"RemoteTable({self.name!r}, capacity={self.capacity}, columns={self.spec.names})"


def document_of(link: Any, raw: Any, timeout: float) -> bytes:
    """The table's document, fetched and compared with the checksum in its info."""
    target = np.zeros(max(1, raw.spec_bytes), np.uint8)
    size, version = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    what = f"fetching the columns of table {_native.name_of(raw.name)!r}"
    memory = _native.pointer("uint8_t[]", target)
    ticket = link.post(
        lib.rp_link_blob,
        lib.RP_BLOB_SPEC,
        raw.number,
        0,
        memory,
        len(target),
        size,
        version,
        timeout=timeout,
    )
    link.wait(ticket, what, timeout)
    document = target[: size[0]].tobytes()
    if lib.rp_crc32c(0, ffi.from_buffer(document), len(document)) != raw.spec_crc:
        raise SpecMismatch(f"{what}: the checksum does not match; look the table up again")
    return document
