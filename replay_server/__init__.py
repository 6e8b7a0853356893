"""Experience replay that lives in the network: a server that stores steps and draws batches itself.

    spec = spec_from(env)
    table = Table("main", step=spec, plan=NStep(3), capacity=100_000)
    with Server([table], "udp://127.0.0.1:0", seed=1) as server, Client(server.address) as client:
        with client.writer("main", autoreset=envs) as writer: ...
        batch = client.sample("main", 512, beta=0.4)
        client.update_priorities("main", batch, priority_from_td(td))

Names are looked up on first use, so that `import replay_server.spec` needs no compiled core.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "writing.autoreset": ("Autoreset", "Rows", "mode_of"),
    "writing.anchors": ("Ready",),
    "batch": ("Batch", "Keys", "priority_from_td"),
    "batches": ("Batches",),
    "client": ("Client",),
    "errors": (
        "ClosedError",
        "ConfigError",
        "EngineError",
        "ForkedError",
        "Full",
        "Insecure",
        "ItemsFailed",
        "LimiterBlocked",
        "NoRoom",
        "NotAuthorised",
        "NothingDrawable",
        "OverBudget",
        "ReplayError",
        "RowsDropped",
        "ServerRestarted",
        "SessionExpired",
        "ShortBatch",
        "SpecMismatch",
        "StaleEpoch",
        "TableEmptied",
        "Timeout",
        "TransportError",
        "UnknownPlan",
        "UnknownTable",
        "WeightsGone",
    ),
    "plans": ("NStep", "Offsets", "Plan", "Row", "Sequence"),
    "requests.priorities": ("UpdateResult",),
    "returns": ("Transitions", "n_step_targets"),
    "server": ("Server", "ServerOptions"),
    "spec": ("Column", "Spec", "SpecError", "spec_from"),
    "stacking": ("FrameStack", "stacks_from_frames"),
    "table": ("Fifo", "MinSize", "Prioritized", "SamplesPerInsert", "Table", "Uniform"),
    "writer": ("Writer",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)


if TYPE_CHECKING:  # the names above, for type checkers and editors, which run nothing
    from .batch import Batch as Batch
    from .batch import Keys as Keys
    from .batch import priority_from_td as priority_from_td
    from .batches import Batches as Batches
    from .client import Client as Client
    from .errors import ClosedError as ClosedError
    from .errors import ConfigError as ConfigError
    from .errors import EngineError as EngineError
    from .errors import ForkedError as ForkedError
    from .errors import Full as Full
    from .errors import Insecure as Insecure
    from .errors import ItemsFailed as ItemsFailed
    from .errors import LimiterBlocked as LimiterBlocked
    from .errors import NoRoom as NoRoom
    from .errors import NotAuthorised as NotAuthorised
    from .errors import NothingDrawable as NothingDrawable
    from .errors import OverBudget as OverBudget
    from .errors import ReplayError as ReplayError
    from .errors import RowsDropped as RowsDropped
    from .errors import ServerRestarted as ServerRestarted
    from .errors import SessionExpired as SessionExpired
    from .errors import ShortBatch as ShortBatch
    from .errors import SpecMismatch as SpecMismatch
    from .errors import StaleEpoch as StaleEpoch
    from .errors import TableEmptied as TableEmptied
    from .errors import Timeout as Timeout
    from .errors import TransportError as TransportError
    from .errors import UnknownPlan as UnknownPlan
    from .errors import UnknownTable as UnknownTable
    from .errors import WeightsGone as WeightsGone
    from .plans import NStep as NStep
    from .plans import Offsets as Offsets
    from .plans import Plan as Plan
    from .plans import Row as Row
    from .plans import Sequence as Sequence
    from .requests.priorities import UpdateResult as UpdateResult
    from .returns import Transitions as Transitions
    from .returns import n_step_targets as n_step_targets
    from .server import Server as Server
    from .server import ServerOptions as ServerOptions
    from .spec import Column as Column
    from .spec import Spec as Spec
    from .spec import SpecError as SpecError
    from .spec import spec_from as spec_from
    from .stacking import FrameStack as FrameStack
    from .stacking import stacks_from_frames as stacks_from_frames
    from .table import Fifo as Fifo
    from .table import MinSize as MinSize
    from .table import Prioritized as Prioritized
    from .table import SamplesPerInsert as SamplesPerInsert
    from .table import Table as Table
    from .table import Uniform as Uniform
    from .writer import Writer as Writer
    from .writing.anchors import Ready as Ready
    from .writing.autoreset import Autoreset as Autoreset
    from .writing.autoreset import Rows as Rows
    from .writing.autoreset import mode_of as mode_of

    __version__: str
else:

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return _version()
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _version() -> str:
    """The release that is installed; "0+unknown" of a checkout that is not."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("replay-server")
    except PackageNotFoundError:
        return "0+unknown"
