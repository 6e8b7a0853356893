"""A network's weights through the server: published whole, pulled whole, with a number each.

Memory for a pull grows to what the server says: the first try has room for FIRST_BYTES, and one
that was too small learns how many are needed. A version that was replaced while it was fetched is
fetched anew, at most PULLS_MAX times.

A server that comes back empty numbers other weights from 1 again. So a number identifies weights
only together with the server's incarnation, which is kept here for the newest pull.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native
from .._native import Link, ffi, lib
from ..errors import ConfigError, OverBudget, SessionExpired, WeightsGone

FIRST_BYTES = 1 << 20
PULLS_MAX = 8
NETWORK = (
    "file = io.BytesIO(); torch.save(net.state_dict(), file); "
    "client.publish_weights(file.getvalue())"
)


def flat_bytes(weights: Any) -> memoryview:
    """The bytes of a buffer, whatever its elements are; ConfigError where it is none."""
    if hasattr(weights, "detach"):
        raise ConfigError(
            "weights is a tensor; publish its bytes, weights.detach().cpu().numpy(), or the whole "
            f"network: {NETWORK}"
        )
    dtype = getattr(weights, "dtype", None)
    if getattr(dtype, "hasobject", False) or hasattr(weights, "mask"):
        kind = "of objects, whose bytes are addresses" if dtype.hasobject else "with a mask"
        raise ConfigError(f"weights is an array {kind}: publish numbers; of a network: {NETWORK}")
    try:
        view = memoryview(weights)
        return view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"weights: expected bytes or a buffer of them ({error}); of a torch network: {NETWORK}"
        ) from error


class Weights:
    """The weights as one client's session sees them."""

    def __init__(self, link: Link) -> None:
        self._link, self._room = link, FIRST_BYTES
        self._pulled = (0, 0)  # the newest pull's version, and the incarnation it is of

    def publish(self, weights: Any, timeout: float) -> int:
        """Makes `weights` the newest version for everyone; the number the server gave it."""
        weights = flat_bytes(weights)
        if len(weights) == 0:
            raise ConfigError("the weights are 0 bytes; expected at least 1")
        memory, version = ffi.from_buffer("uint8_t[]", weights), ffi.new("uint64_t *")
        ask, what = (memory, len(weights), version), f"publishing {len(weights)} bytes of weights"
        try:
            self._link.request(lib.rp_link_publish, *ask, what=what, timeout=timeout)
        except SessionExpired as error:
            raise SessionExpired.publishing(what) from error
        return version[0]

    def pull(self, newer_than: int, timeout: float) -> tuple[int, bytes] | None:
        """(version, bytes) of the newest weights; None where that is version `newer_than`."""
        for _ in range(PULLS_MAX):
            incarnation = lib.rp_link_incarnation(self._link.raw)
            status, version, weights = self._fetch(timeout)
            if status == 0:
                same = self.same(version, newer_than)
                self._pulled = (version, incarnation)
                return None if same else (version, weights)
            if status == -_native.NUMBERS["NO_WEIGHTS"]:
                return None
            if _native.STATUSES[-status] not in ("TOO_LARGE", "GONE"):
                _native.check(status, "pulling weights")
        raise WeightsGone("pulling weights: they changed faster than they could be fetched")

    def none_newer(self, newer_than: int) -> bool:
        """Whether the newest answer named no weights, or version `newer_than`."""
        newest = lib.rp_link_weights_version(self._link.raw)
        return newest == 0 or self.same(newest, newer_than)

    def same(self, version: int, newer_than: int) -> bool:
        """Whether the server's `version` is what the caller has as `newer_than`."""
        pulled, incarnation = self._pulled
        return version == newer_than and (
            pulled != newer_than or incarnation == lib.rp_link_incarnation(self._link.raw)
        )

    def _fetch(self, timeout: float) -> tuple[int, int, bytes]:
        target = np.empty(self._room, np.uint8)
        size, version = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        memory, ask = _native.pointer("uint8_t[]", target), (lib.RP_BLOB_WEIGHTS, 0, 0)
        ask = (*ask, memory, len(target), size, version)
        status = self._link.outcome(lib.rp_link_blob, *ask, what="pulling weights", timeout=timeout)
        if status == -_native.NUMBERS["TOO_LARGE"]:
            if size[0] > lib.RP_BLOB_BYTES_MAX:
                raise OverBudget(f"the server's weights are {size[0]} bytes, beyond any limit")
            self._room = int(size[0])
        return status, version[0], target[: size[0]].tobytes() if status == 0 else b""
