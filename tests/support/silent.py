"""A client for which nobody speaks while no call is made, as if its process stood still."""

from __future__ import annotations

from replay_server import Client


class Silent(Client):
    """Its links, and its writers', have no keeper."""

    def _open_link(self, **more):
        return super()._open_link(unkept=1, **more)
