"""Writing experience: rows go in as they happen, items are created when their window is complete.

A `Writer` is a session of its own with one place on one table. For each of its streams, one for an
environment, it keeps the number of the next row and how many rows the open episode has. Rows count
from 0 along a stream, closing rows included; (stream, step) names a row for good.

    add, add_batch   what `step` returned -> rows (autoreset.py) -> append; returns what is `Ready`
    append           rows made elsewhere, such as by an actor that computes its own windows
    create_items     items at ready anchors, with priorities, or the table's largest priority so far
    flush            waits until everything is acknowledged, which means stored; raises otherwise

An anchor is ready once as many rows follow it as the table's plans reach ahead, or its episode has
ended. Where no call creates its item, the next `add`, `flush` or `close` does (with the largest
priority so far), and until a caller uses `create_items` also `send`, or the client after KEPT_S.

What `add` takes is gathered here, some dozens of rows, and handed to the link in one call
(block.py); the link sends full datagrams at once. No thread hands rows over: what has waited HOLD_S
leaves with the next call of the writer or its client, in the thread that adds. The link's keeper
(native/drive/link_keep.c) only sends, and repeats, what was handed over.
Rows that a limiter holds back stay here and go first; how many is bounded, then calls wait. A call
that raises Timeout or LimiterBlocked has taken nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from threading import get_ident
from time import monotonic
from typing import Any

import numpy as np
from numpy import ndarray

from . import _native
from ._native import Deadline, Link, ffi, lib
from .errors import ClosedError, ConfigError, ReplayError, ServerRestarted, TableEmptied
from .requests.priorities import DOUBLES, checked_priorities, warn_of_large
from .requests.remote import RemoteTable
from .spec import SpecError
from .support.values import odd_pair
from .writing.anchors import Anchors, Ready, anchors_in
from .writing.autoreset import Autoreset, Rows
from .writing.block import ROWS_MAX, Block, Creates
from .writing.created import Made
from .writing.fast_path import DECLINED, NO_END, FastPath
from .writing.finals import require_said
from .writing.following import NUMBERS, Following
from .writing.gaps import (
    Untaken,
    close_gap,
    cut_off,
    end_before,
    end_unfinished,
    give_up,
    look_at,
    require_led_to,
)
from .writing.plain_rows import ask_for_place, take_ledger, writer_error
from .writing.reused import buffer_of
from .writing.writers import (
    NOT_TAKEN,
    WriterState,
    alone,
    creating,
    end,
    end_for_good,
    offer,
    push_state,
    state_of,
    take_over,
    warn_of_dropped,
    warn_of_failed,
    with_axis,
)

HOLD_S, KEPT_S = 0.001, 0.1
OVER = (ServerRestarted, TableEmptied, ClosedError)  # no step follows
KEPT = "(what was added is kept and goes first)"


class Writer:
    """Writes the steps of one or several environments to a table; made by `Client.writer`.

    `add` takes a step and returns the anchors that became ready. Each becomes an item with the
    table's largest priority so far. After a `create_items` behind that `add` only those that it
    names do, with the priorities that it gives. `flush` waits until all is stored, and so does the
    end of `with`. What `add` took last is not sent without a further call: `flush` before a long
    pause. One thread owns the writer from its first `add` to its `flush`: two that add in turns
    would mix their episodes.

    `link` is closed with it. `single`: values have no leading axis. `mode`: of autoreset.MODES.
    """

    def __init__(
        self,
        link: Link,
        table: RemoteTable,
        streams: int,
        mode: str,
        timeout: float,
        *,
        single: bool = False,
        finite_observations: bool = True,
        own: Any = None,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self.link, self.table, self.spec, self.timeout = link, table, table.spec, timeout
        link.kind = "writer"
        self.streams, self._single = streams, single
        self._rows = Autoreset(
            self.spec, mode, streams, finite_observations=finite_observations, own=own is not None
        )
        self._rows.buffer = buffer_of(own)
        self._following, self._untaken = Following(self._rows), Untaken(self._rows)
        self._last: Any = None  # the next observation of the newest step, and of the one before
        self._before: Any = None
        self._look = 0.0  # when the next step is looked at
        self._anchors = Anchors(streams, table.ahead)
        self.window = ask_for_place(link, table, streams, timeout)
        self._block = Block(self.spec, streams, table.ahead, rows_max)
        self._fast_path = FastPath(self._block, mode == "single", self._rows.finite)
        self._fast = self._fast_path.single if mode == "single" else self._fast_path.batch
        self._creates = Creates()
        self._made = Made(streams)
        self._held = False  # rows wait, or Ctrl-C came: the anchors may not have counted them
        self._due = 0.0  # when the block is handed over, full or not
        self._owner: int | None = None  # the thread that added since the last flush; negative: it
        # is within a call, and a signal's handler may run there
        self._owning = _native.Lock()
        self._moving = False  # the link was given rows since all it has was acknowledged
        self._visited = 0.0  # when a call of the client looked after this writer
        self._silent_s = link.silence()
        self._doubtful = monotonic() + self._silent_s  # from then on the session may be gone
        self._failed, self._lost = 0, None  # failed items, rows that a loss cost: those reported
        self._warned: set[str] = set()  # the table, once its largest priority was warned of

    # -- adding ----------------------------------------------------------------------------------

    def add(
        self,
        *,
        observation: Any = None,
        action: Any = None,
        reward: Any = None,
        terminated: Any = None,
        truncated: Any = None,
        next_observation: Any = None,
        final_observation: Any = None,
        infos: Mapping[str, Any] | None = None,
        life_lost: Any = None,
        **extras: Any,
    ) -> Ready:
        """One step of a single environment, for writers of one stream; what became ready.

        Arguments and errors are those of `add_batch`, without the leading axis of the arrays.
        """
        if self.streams != 1:
            raise ConfigError(f"add is for one stream, this writer has {self.streams}: add_batch")
        if self._rows.mode != "single":
            self._rows.leading = False
            observation, action, reward = with_axis((observation, action, reward))
            terminated, truncated, life_lost = with_axis((terminated, truncated, life_lost))
            last, extras = with_axis(((next_observation, final_observation), extras))
            next_observation, final_observation = last
        said = (terminated, truncated, next_observation, infos, final_observation)
        return self._add(observation, action, reward, said, life_lost, extras)

    def add_batch(
        self,
        *,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_observation: Any = None,
        final_observation: Any = None,
        infos: Mapping[str, Any] | None = None,
        life_lost: Any = None,
        **extras: Any,
    ) -> Ready:
        """One step of all environments; returns the anchors that became ready (`Ready`).

        observation, action: what the actions were chosen from, and the actions; then what `step`
        returned. life_lost, bool [streams], cuts returns, not episodes; extras: the table's own
        columns. Arrays have the leading axis [streams], nested as in the spaces. An episode that
        ends needs its last observation: in next_observation, in infos["final_obs"] (same-step
        mode), or in final_observation. Give next_observation at every step: a reset in mid-episode
        that nobody reported is found by it, and the episode is cut, with a warning. One that is not
        finite ends the episode without the items that lead there.

        SpecError names column, expected and got, or what contradicts the writer's mode.
        LimiterBlocked or Timeout: rows added before were not let in within the writer's timeout.
        The step was not taken then. After Ctrl-C a note on KeyboardInterrupt (__notes__, Python
        3.11) says whether it was; without a note the call had not begun, or was over: go on with
        the next step.
        """
        said = (terminated, truncated, next_observation, infos, final_observation)
        return self._add(observation, action, reward, said, life_lost, extras)

    def _add(
        self, observation: Any, action: Any, reward: Any, said: tuple, life_lost: Any, extras: dict
    ) -> Ready:
        block, autoreset, fast_path = self._block, self._rows, self._fast_path
        terminated, truncated, next_observation, infos, final_observation = said
        steps = None  # of the block before this one is written; -1: it was
        me = get_ident()
        if self._owner != me:
            take_over(self, me)
        try:  # `alone`, written out
            self._owner = -me
            now = monotonic()
            if now >= self._doubtful:
                self._wake()
            if self._untaken.waits:
                close_gap(self, observation, next_observation, (reward, terminated, truncated))
            last = self._last
            if observation is not last and now >= self._look:
                kind, following = type(observation), self._following
                if (
                    following.small
                    and kind is type(last)
                    and (
                        observation.tobytes() == last.tobytes()
                        if kind is ndarray
                        else kind in NUMBERS and observation == last
                    )
                ):
                    following.odd = following.zeros
                else:
                    look_at(self, observation, next_observation, now)
            if self._held or block.steps == block.steps_max:
                self._drain(self.timeout, f"adding {NOT_TAKEN}")
            known, kept = observation is fast_path.known is not None, next_observation
            if (  # nearly all are apart, which is seen at once: arrays of two owners
                type(kept) is ndarray
                and kept.shape == fast_path.observation_shape
                and kept.dtype is fast_path.observation_dtype
            ):
                root = kept if kept.base is None else kept.base
            else:
                kept = root = None
            apart = known and root is not fast_path.root and type(root) is ndarray
            if autoreset.fresh or (not apart and odd_pair(observation, next_observation)):
                autoreset._require_apart(observation, next_observation)
            if autoreset.closed is not None:
                autoreset._look(observation)
            if final_observation is not None or (infos is not None and type(infos) is not dict):
                require_said(autoreset, infos, final_observation)
            outcome, made_up, steps = DECLINED, autoreset.made_up, block.steps
            if fast_path.usable and life_lost is None and not extras:
                outcome = self._fast(observation, action, reward, terminated, truncated, known)
            if outcome == NO_END and not autoreset.any_made_up:
                self._held = True
                block.steps += 1
                ready = self._anchors.advance_all()
            else:
                if outcome == DECLINED:
                    more = (*said, life_lost, extras, True)  # looked at above
                    rows = autoreset.rows(observation, action, reward, *more)
                    ready = self._accept(rows)
                else:
                    real, ended, closing = autoreset._ends(*said, observation, reward)
                    self._held = True
                    block.mark(real, ended, closing)
                    ready = self._anchors.advance_some(real, ended)
            self._made.ready = ready
            self._held, block.pending = False, True
            self._before, self._last = last, next_observation
            fast_path.known, fast_path.root, steps = kept, root, -1
            if block.steps == block.steps_max or now >= self._due:
                self._hand_over(0)
            return ready
        except BaseException as error:
            taken = steps is not None and block.steps != steps
            if taken or not isinstance(error, Exception):
                cut_off(self, error, taken, next_observation)
            if not taken and steps is not None:
                autoreset._go_back(made_up)
            if not taken and not isinstance(error, OVER):
                ends = (terminated, truncated, next_observation)
                self._untaken.note(observation, self._last, *ends)
                if steps is not None and isinstance(error, SpecError):
                    give_up(self, observation, error)
            raise
        finally:
            self._owner = me

    @alone
    def append(self, rows: Rows) -> Ready:
        """Appends rows made elsewhere; what became ready, for the caller to create items of.

        SpecError: they do not fit. LimiterBlocked, Timeout: older ones wait. None is taken then.
        """
        rows, self._last = self._block.fitting(rows, self._rows.finite), None
        self._before = None
        return self._put(rows, 0, "appending")

    def add_step(
        self,
        observation: Any,
        action: Any,
        next_observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        infos: Mapping[str, Any] | None = None,
        **extras: Any,
    ) -> Ready:
        """A step in the order of Gymnasium: writer.add_step(obs, action, *env.step(action)).

        Calls `add` for a single environment, without a leading axis; else `add_batch`, with it.
        """
        return (self.add if self._single else self.add_batch)(
            observation=observation,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_observation=next_observation,
            infos=infos,
            **extras,
        )

    def restart(self, mask: np.ndarray | None = None, final_observation: Any = None) -> None:
        """Reports that environments were reset by hand (`mask`: bool [streams]; None: all).

        An episode that is open there ends, as truncated, at `final_observation`: the last that
        `step` returned, with the axes of `add_batch`. ConfigError where that is missing, SpecError
        where it is not what the newest step led to. Behind a step that was not taken the episode
        ends before it, whatever that step returned. An episode whose newest step led to a NaN or
        an infinity ends without the items that lead there, whatever is given.
        """
        cut = self._rows._chosen(mask) & (self._anchors.length > 0)
        if self._held or self._owner == -get_ident() or cut.any():
            self._restart_alone(mask, final_observation)
        else:
            self._rows.restart(mask)
        self._untaken.forget(mask)

    def _restart(self, mask: np.ndarray | None, final_observation: Any) -> None:
        if self._held:
            self._drain(self.timeout, f"ending episodes {NOT_TAKEN}")
        chosen = self._rows._chosen(mask)
        cut = chosen & (self._anchors.length > 0) & ~self._following.spoilt(self._last)
        if cut.any() and final_observation is None:
            raise ConfigError(
                f"the episode of stream {np.argmax(cut)} is open: restart needs final_observation, "
                "the last observation that step returned there"
            )
        if cut.any() and self._untaken.waits:
            end_before(self, cut, self._untaken.written)
        elif cut.any():
            require_led_to(self, cut, final_observation)
            self._put(self._rows.cut(cut, final_observation), 1, "ending episodes")
        end_unfinished(self, chosen)  # who is open still: no item leads to a NaN
        self._rows.restart(mask)

    _restart_alone = alone(_restart)

    # -- items -----------------------------------------------------------------------------------

    def create_items(self, ready: Any, priorities: Any = None) -> None:
        """Creates items at the anchors of `ready` (anything with .streams and .steps, [K] each).

        priorities: float64 [K]; None: the largest so far. Warns of items that exist already.
        """
        self.create(*anchors_in(ready), priorities)

    @creating
    def create(self, streams: Any, steps: Any, priorities: Any = None) -> None:
        """Creates items at rows (stream, step), int [K] each; `priorities`: float64 [K].

        Without priorities: the largest priority so far. Anchors that the last `add` returned and
        that are not named here get no item. From the first call on, only a step, `flush` or `close`
        makes items before it. Warns of items that exist already.
        """
        self._made.asked = True
        streams, steps = self._anchors.checked(streams, steps)
        count = len(steps)
        masses = None if priorities is None else checked_priorities(priorities, count)
        if masses is not None:
            warn_of_large(self.table, ffi.from_buffer(DOUBLES, masses), count, self._warned)
        new = self._made.take(self._anchors, self._block, streams, steps, self.table.name)
        if not new.any():
            return
        self._drain(self.timeout, f"creating items {NOT_TAKEN}")
        creates, made = Creates(streams, steps, masses, new), self._made
        begin, end = made.more(streams[new], steps[new])
        made.begin, made.end, self._creates = begin, end, creates  # no call: nothing comes between
        self._hand_over(0)

    def _finish_pending(self) -> None:
        self._block.pending = False  # what nobody created becomes items with the next hand-over

    # -- sending ---------------------------------------------------------------------------------

    def _accept(self, rows: Rows) -> Ready:
        self._held = True
        self._block.lay(rows)
        ready = self._anchors.advance(rows.streams, rows.ended_streams)
        self._held = False
        return ready

    def _put(self, rows: Rows, items: int, what: str) -> Ready:
        """Hands over rows that no `add` made; `items`: 1 makes the items of their ready anchors."""
        self._finish_pending()
        self._drain(self.timeout, f"{what} {NOT_TAKEN}")
        self._made.claim(self._anchors, None)
        ready = self._accept(rows)
        self._block.items[self._block.steps - 1] = items
        if not items:
            self._made.claim(self._anchors, ready)
        self._hand_over(0)
        return ready

    def _hand_over(self, wait_ns: int) -> bool:
        """Hands rows, then creates, to the link; True where it took all of them within wait_ns."""
        block, creates, link = self._block, self._creates, self.link.raw
        held, self._held, self._moving = self._held, True, True
        status = self._checked(block.push(link, self.table.number, wait_ns))
        if status == 0 and creates.begin < creates.end:
            self._checked(creates.push(link, self.table.number, wait_ns))
        if status == 0 and creates.begin == creates.end:
            if held:
                self._anchors.recount(*block.pushed())
            self._held, now = False, monotonic()
            self._due, self._doubtful = now + HOLD_S, now + self._silent_s
            if not self._failed:
                self._failed = warn_of_failed(self.table.name, 0, self._raw_state())
        return not self._held

    def _drain(self, timeout: float, what: str) -> None:
        """Waits until the link took all that was added; what it did not take in time stays here."""
        wait, deadline = min(_native.nanoseconds(timeout), lib.RP_SLICE_NS), None
        while not self._hand_over(wait):
            if deadline is None:
                deadline = Deadline(timeout)
            elif not deadline.left():
                raise self._held_back(what.format(left=self._left()))
            wait = min(deadline.left(), lib.RP_SLICE_NS)

    @alone
    def send(self) -> None:
        """Sends what was added now, full datagram or not; does not wait for answers."""
        self._block.pending &= self._made.asked
        self._drain(self.timeout, f"sending {KEPT}")
        self._checked(lib.rp_link_flush(self.link.raw, self.table.number))

    def _go_on(self) -> None:
        """Hands over what `add` took, in the thread that adds, and takes one turn of the session.
        Anchors become items where the caller never created any: it waits for items, perhaps these.
        An error stays, and the writer's own next call raises it."""
        if self._owner == get_ident():
            self._block.pending &= self._made.asked
            offer(self)
        lib.rp_link_settle(self.link.raw, self.table.number, 0)

    def _look_after(self) -> None:
        """For any call of the client: sends what has waited HOLD_S, keeps an idle session alive.
        Items are left to the caller for KEPT_S."""
        now, block = monotonic(), self._block
        if now < self._visited + (HOLD_S if block.steps or self._moving else self._silent_s):
            return
        self._visited = now
        if self._owner == get_ident():
            if block.steps == block.pending and now >= self._due + KEPT_S:
                block.pending &= self._made.asked
            if block.steps > block.pending or self._held:
                offer(self)
        status = lib.rp_link_settle(self.link.raw, self.table.number, 0)
        if status == 0:
            lib.rp_link_drive(self.link.raw, 0)  # its keep-alive; settling found nothing to do
        self._moving, self._doubtful = status == _native.PENDING, now + self._silent_s

    def _wake(self) -> None:
        """After a silence: raises if the session is gone. Where nobody answers, nothing changes."""
        what = "asking for the writer's session"
        self.link.outcome(lib.rp_link_ping, what=what, timeout=self.timeout)
        self._checked(self._raw_state().status)
        self._doubtful = monotonic() + self._silent_s

    def flush(self, timeout: float | None = None) -> WriterState:
        """Waits until every row and item so far is stored; raises where that is not in time.

        Warns (ItemsFailed) of items refused for good. From here on another thread may add.
        """
        return self._flush(self.timeout if timeout is None else timeout, f"flushing {KEPT}")

    @alone
    def _flush(self, timeout: float, what: str) -> WriterState:
        self._finish_pending()
        self._drain(timeout, what)
        deadline = Deadline(timeout)
        while True:
            wait = min(deadline.left(), lib.RP_SLICE_NS)
            status = lib.rp_link_settle(self.link.raw, self.table.number, wait)
            if self._checked(status) != _native.PENDING:
                state = self.state()
                self._owner = None
                self._failed = warn_of_failed(self.table.name, self._failed, state)
                return state
            if not deadline.left():
                raise self._held_back(what.format(left=self._left()))

    # -- facts -----------------------------------------------------------------------------------

    def state(self) -> WriterState:
        """How many rows and items were posted, stored and refused so far."""
        if self._owner == get_ident():
            self._push_left()
        return state_of(self._raw_state(), self._block)

    @alone
    def _push_left(self) -> None:
        self._block.push(self.link.raw, self.table.number, 0)

    def ledger(self) -> np.ndarray:
        """The acknowledged rows since the last call, of the newest few hundred datagrams at most:
        structured [N] of step, key, stream, table."""
        return take_ledger(self.link)

    @property
    def weights_version(self) -> int:
        """The newest weights version that an answer to this writer named; 0 before the first."""
        return lib.rp_link_weights_version(self.link.raw)

    @property
    def closed(self) -> bool:
        """Whether this writer is closed."""
        return self.link.closed

    def __repr__(self) -> str:
        return f"Writer({self.table.name!r}, streams={self.streams}{', closed' * self.closed})"

    def close(self, timeout: float | None = None) -> None:
        """Flushes and ends the session; open episodes are cut at their last stored row.

        Raises what was lost and not yet reported. After Timeout, LimiterBlocked or Ctrl-C it is
        still open, with all that it took: close it again. `close(0)` gives up what is not stored;
        RowsDropped says how much. The end of `with` gives it up too, and its error says how much.
        The last rows of an open episode, as many as the plan reaches ahead (NStep(n): n), become no
        items, unless `restart(final_observation=...)` ends it first.
        """
        timeout = self.timeout if timeout is None else timeout
        if not self.closed:
            end(self, timeout)

    def _left(self) -> int:
        return max(self._raw_state().unacknowledged + self._block.left - (self._lost or 0), 0)

    def __del__(self) -> None:
        with suppress(Exception):  # half made, or at the interpreter's end
            if not self.link.closed:
                with suppress(ReplayError):
                    self._finish_pending()
                    self._hand_over(0)
                lib.rp_link_settle(self.link.raw, self.table.number, 0)
                warn_of_dropped(self.table.name, self._left(), "a writer was dropped")

    def __reduce__(self) -> tuple:
        return self.link.__reduce__()  # refused, to copy.copy too

    def __enter__(self) -> Writer:
        if self.closed:
            raise ClosedError("this writer is closed; open another one with client.writer(...)")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None and not self.closed:
            end_for_good(self)
        elif not self.closed:
            with suppress(ReplayError):
                if self._owner == get_ident():
                    self._push_left()
            self.link.close(self.timeout, error)

    # -- errors ----------------------------------------------------------------------------------

    def _raw_state(self) -> Any:
        return push_state(self.link, self.table.number)

    def _checked(self, status: int) -> int:
        """Returns `status` if it is no error; else raises the writer's error, with its losses."""
        if status < 0:
            error = writer_error(self.link, self.table, status, self._block.left)
            if isinstance(error, (ServerRestarted, TableEmptied)):
                self._lost = error.in_doubt + error.lost
            raise error
        return status

    def _held_back(self, what: str) -> ReplayError:
        return _native.held_back(self.link, self._raw_state().need, self.table, what)
