"""Each mistake of a caller is one sentence, at the first call that can know."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from environments import ChainEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from deploy.demo import _judged
from replay_server import (
    Client,
    ClosedError,
    Column,
    ConfigError,
    MinSize,
    NStep,
    Offsets,
    OverBudget,
    Prioritized,
    SamplesPerInsert,
    Sequence,
    Server,
    Spec,
    SpecError,
    Table,
    TransportError,
    UnknownTable,
    priority_from_td,
    spec_from,
)
from replay_server.errors import ItemsFailed
from replay_server.training.contact import NoServer, Stop, connect

ROOT = Path(__file__).resolve().parents[2]
NAN = float("nan")
MASKED = np.ma.masked_array(np.ones(2, np.float32), mask=[True, False])
ONE_ROW = {"observation": np.ma.masked_array(np.ones((1, 2)), mask=True), "reward": np.ones(1)}
ROWS = Spec((Column("observation", np.float32, (2,)), Column("reward", np.float32)))


def add_episode(client, table, length):
    """One of ChainEnv, that terminates."""
    with client.writer(table) as writer:
        for step in range(1, length + 1):
            writer.add_step(np.int64(1), np.int64(0), np.int64(1), 1.0, step == length, False)


@pytest.fixture(scope="module")
def served():
    """A table of plain rows, one of sequences, and a client."""
    spec = spec_from(ChainEnv())
    tables = [
        Table("rows", step=ROWS, capacity=1000),
        Table("actions", Spec((Column("action", np.float32, (2,)),)), capacity=1000),
        Table("sequences", step=spec, plan=Sequence(length=4, n=1), capacity=1000),
    ]
    with Server(tables, "loopback://sentences") as server, Client(server.address) as client:
        client.extend("rows", {"observation": np.ones((9, 2), np.float32), "reward": np.ones(9)})
        add_episode(client, "sequences", 12)
        yield client


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: Table("m", ROWS, 100), ConfigError, "plan is 100; expected a plan such as NStep"),
        (lambda: Table("m", ROWS, capacity=10**11), ConfigError, "capacity is 100000000000"),
        (lambda: Table("m", ROWS, capacity=1e5), ConfigError, "expected a whole number"),
        (lambda: spec_from(42), SpecError, "expected a Gymnasium Env or VectorEnv, got 42"),
        (lambda: Column("x", np.float32, 3), SpecError, r"expected a tuple such as \(3,\)"),
        (lambda: Server([ROWS]), ConfigError, "expected Table"),
        (lambda: Server(5), ConfigError, "tables is 5; expected"),
        (lambda: Server([], url=5), ConfigError, "url is 5; expected str"),
        (lambda: Server([], seed="a"), ConfigError, "seed is 'a'; expected a whole number"),
        (lambda: Server([], sessions=2.5), ConfigError, "sessions is 2.5; expected a whole"),
        (lambda: Server([], busy_poll="no"), ConfigError, "busy_poll is 'no'; expected"),
        (lambda: Table("m", ROWS, limiter=5), ConfigError, "limiter is 5; expected MinSize or"),
        (lambda: Table("m", ROWS, sampler=0.6), ConfigError, "sampler is 0.6; expected Prio"),
        (lambda: Table("m", ROWS, window="a"), ConfigError, "window is 'a'; expected a whole"),
        (lambda: Table(5, ROWS), ConfigError, "table name 5"),
        (lambda: Table("m", ROWS, {5: NStep(2)}), ConfigError, "plan name 5"),
        (lambda: NStep(2.5), SpecError, r"NStep\(n\) is 2.5; expected a whole number"),
        (lambda: NStep(3, stack=0), SpecError, r"NStep\(stack\) is 0"),
        (lambda: Sequence(4, state="lstm"), SpecError, "expected names"),
        (lambda: Sequence(4.5), SpecError, r"Sequence\(length\) is 4.5"),
        (lambda: Offsets({"x": (0, 0.5)}), SpecError, r"Offsets\('x'\) is 0.5"),
        (lambda: Offsets([1]), SpecError, r"Offsets: \[1\]"),
        (lambda: MinSize(1.5), ConfigError, r"MinSize\(items\) is 1.5"),
        (lambda: SamplesPerInsert("4"), ConfigError, "is '4'; expected a number above 0"),
        (lambda: SamplesPerInsert(NAN), ConfigError, "is nan; expected a number above 0"),
        (lambda: SamplesPerInsert(4, 9, "x"), ConfigError, "'x'; expected a number of at least"),
        (lambda: SamplesPerInsert(4, 9, (1, 2, 3)), ConfigError, "expected a number or two"),
        (lambda: Prioritized("a"), ConfigError, r"Prioritized\(alpha\) is 'a'"),
        (lambda: Column("x", "nope"), SpecError, "dtype is 'nope'"),
        (lambda: Column(5, np.float32), SpecError, "column name 5"),
        (lambda: Spec([5]), SpecError, "5 is no column"),
        (lambda: Client("loopback://none", timeout=None), ConfigError, "timeout is None"),
        (lambda: Client("loopback://none", timeout=NAN), ConfigError, "timeout is nan"),
        (lambda: Client("loopback://none", connect_timeout="5"), ConfigError, "connect_timeout"),
        (lambda: Client("loopback://none", mtu="a"), ConfigError, "mtu is 'a'"),
        (lambda: Client("loopback://none", specs=5), ConfigError, "specs is 5"),
        (lambda: Server([], sed=3), ConfigError, "no option 'sed', nearest is 'seed'; there are"),
        (
            lambda: Column("x", np.float32, (2.5,)),
            SpecError,
            r"\(2.5,\); expected a tuple",
        ),
        (
            lambda: priority_from_td(np.ones(2) * 1j),
            ConfigError,
            "td: expected real numbers, got complex128",
        ),
        (
            lambda: Client("http://127.0.0.1:1"),
            TransportError,
            r"no such transport; this build has [^;]*$",
        ),
    ],
)
def test_descriptions_that_cannot_be(make, kind, words):
    """Given each wrong description. Expect its sentence."""
    with pytest.raises(kind, match=words):
        make()


def test_empty_lists_are_no_rows(served):
    """Given a list without rows in each column. Expect no key and no row, as of empty arrays."""
    before = served.size("rows")
    assert len(served.extend("rows", {"observation": [], "reward": []})) == 0
    assert served.size("rows") == before


@pytest.mark.parametrize("streams", [1, 2])
def test_what_reset_returns_is_no_observation(served, streams):
    """Given (obs, info) where an observation is meant. Expect a sentence that says what to do."""
    lead = () if streams == 1 else (2,)
    mode = None if streams == 1 else "disabled"
    observation, flags = np.ones(lead, np.int64), np.zeros(lead, np.bool_)
    rest = (np.zeros(lead, np.int64), observation, np.ones(lead), flags, flags)
    with (
        served.writer("sequences", streams, autoreset=mode) as writer,
        pytest.raises(SpecError, match=r"reset returns \(obs, info\), say obs, _ = env.reset"),
    ):
        writer.add_step((observation, {}), *rest)


@pytest.mark.parametrize("kind", ["env", "vector"])
def test_an_environment_of_other_columns_is_told_at_once(served, kind):
    """Given an environment whose observations the table does not store. Expect one warning when it
    is handed over, before a step is refused; none of the table's own."""
    other, own = gymnasium.make("CartPole-v1"), ChainEnv()
    if kind == "vector":
        other, own = (
            SyncVectorEnv([lambda env=env: env] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
            for env in (other, own)
        )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        served.writer("sequences", autoreset=own).close()
        assert not told
        served.writer("sequences", autoreset=other).close()
    (told,) = [str(each.message) for each in told]
    assert "stores {'observation': ()}" in told and "'observation': (4,)" in told
    assert "step=spec_from(env)" in told


def test_numbers_of_other_libraries_are_numbers():
    """Given numpy's integers and a list where a pair is meant. Expect them taken, as Python's."""
    limiter = SamplesPerInsert(np.float32(4), np.int64(10), [10, 90])
    table = Table("m", ROWS, capacity=np.int32(4096), limiter=limiter)
    assert (table.capacity, limiter.error_buffer) == (4096, (10.0, 90.0))
    assert type(table.capacity) is int
    assert NStep(np.int64(3)) == NStep(3)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda c: c.sample("rows", 5000), OverBudget, "at most 2048 in one .* batch_max = 5000"),
        (lambda c: c.sample("rows", 2049), OverBudget, "at most 2048 in one .* batch_max = 2049"),
        (lambda c: c.landing("rows", 2049), OverBudget, "at most 2048 .* batch_max = 2049"),
        (lambda c: c.batches("rows", 2049), OverBudget, "at most 2048 .* batch_max = 2049"),
        (lambda c: Client(c.address, specs=[ROWS]), ConfigError, "specs is an object of list;"),
        (lambda c: c.sample("rows", 4, uniform="a"), ConfigError, "uniform is 'a'"),
        (lambda c: c.sample("rows", 4, stratified="yes"), ConfigError, "'yes'; expected True or F"),
        (lambda c: c.get("rows", [3, -1]), ConfigError, "keys: .*2.64 - 1, got -1$"),
        (lambda c: c.get("rows", [1.5]), ConfigError, "keys: .* whole numbers .* got float64$"),
        (lambda c: c.extend("rows", {"reward": [[1], [1, 2]]}), SpecError, "lists of one length$"),
        (lambda c: c.sample("rows", 4, timeout="a"), ValueError, "timeout is 'a'"),
        (lambda c: c.writer("rows", autoreset="nextstep"), ConfigError, "nearest is 'next-step'$"),
        (lambda c: c.writer("rows", autoreset="CartPole-v1"), ConfigError, "itself, not its name$"),
        (lambda c: priority_from_td([10**400]), ConfigError, "td: expected numbers .*too large"),
        (lambda c: priority_from_td([1.0], -1.0), ConfigError, "epsilon.*-1"),
        (Client, ConfigError, r"is no address: hand over its \.address$"),
        (lambda c: c.batches("rows", "a"), ConfigError, "batch is 'a'"),
        (lambda c: c.batches("rows", 4, prefetch=1.5), ConfigError, "prefetch is 1.5"),
        (lambda c: c.update_priorities("rows", [1], ["a"]), ConfigError, "expected 1 numbers"),
        (lambda c: c.update_priorities("rows", [1], [None]), ConfigError, r"\[0\] is None; exp"),
        (
            lambda c: c.extend("rows", {"observation": [], "reward": [1.0]}),
            SpecError,
            r"'observation': expected shape \(1, 2\), got \(0, 2\)",
        ),
        (
            lambda c: c.update_priorities("sequences", c.sample("rows", 2), [1.0, 1.0]),
            ConfigError,
            "the batch is of table 'rows', not of 'sequences'",
        ),
        (lambda c: c.writer("rows", unacknowledged_max="a"), ConfigError, "acknowledged_max"),
        (lambda c: c.extend("rows", None), ConfigError, "columns is None; expected .*'reward': "),
        (lambda c: c.extend("rows", [{}]), ConfigError, r"columns is \[{}\]; expected "),
        (lambda c: c.extend("rows", {1: 2}), SpecError, "no column 1; there are"),
        (lambda c: c.sample("rows", 4, out=np.zeros(3)), ConfigError, "out is array.*ted Landing"),
        (
            lambda c: c.sample("rows", 4, out=c.landing("sequences", 4)),
            ConfigError,
            "out holds 4 .* of table 'sequences'; 4 .* of table 'rows' are asked for",
        ),
        (lambda c: c.writer("rows", spec="x"), ConfigError, "spec is 'x'; expected Spec"),
        (lambda c: c.table("rows", spec={}), ConfigError, "spec is {}; expected Spec"),
        (lambda c: c.pull_weights("1"), ConfigError, "newer_than is '1'; expected a whole"),
        (lambda c: c.can_sample("rows", -5), ConfigError, "batch is -5; expected a whole"),
        (lambda c: c.can_sample("rows", "3"), ConfigError, "batch is '3'; expected a whole"),
        (lambda c: c.size(3), UnknownTable, "table 3: expected a name of 1 to 31 bytes"),
        (lambda c: c.size(""), UnknownTable, "table '': expected a name of 1 to 31 bytes"),
        (
            lambda c: c.update_priorities("rows", [1], np.ones(1) * 1j),
            ConfigError,
            "^priorities: expected real numbers, got complex128",
        ),
        (lambda c: c.sample("rows", 2)["rewrad"], KeyError, "'rewrad', nearest is 'reward'; there"),
        (lambda c: c.sample("rows", 2)[0], KeyError, "no column 0; there are observation, reward"),
        (lambda c: c.sample("rows", 2)[:1], KeyError, "no column slice.*there are observation"),
        (lambda c: list(c.sample("rows", 2)), TypeError, "not iterable"),
        (
            lambda c: c.sample("sequences", 2).transitions(0.9, device="gpu"),
            ConfigError,
            "device 'gpu'",
        ),
        (
            lambda c: c.extend("actions", {"action": np.full((1, 2), NAN, np.float32)}),
            SpecError,
            "'action': expected finite numbers, got nan",
        ),
        (
            lambda client: client.batches("rows", 4, prefetch=20),
            ConfigError,
            r"keeps 8 batches .* ask for 8 at most, or serve with more, Server\(records=20\)",
        ),
        (lambda client: client.get("rows", None), ConfigError, "keys is None; expected those of"),
        (lambda client: client.update_priorities("rows", None, [1.0]), ConfigError, "keys is None"),
        (lambda client: client.writer("sequences", "4"), ConfigError, "streams is '4'; expected a"),
        (lambda client: client.publish_weights(torch.ones(2)), ConfigError, "weights is a tensor"),
        (lambda client: client.extend("rows", ONE_ROW), SpecError, "'observation': a masked array"),
        (
            lambda client: client.update_priorities("rows", [1, 2], MASKED),
            ConfigError,
            "priorities: a masked array, .* fill it",
        ),
        (lambda client: client.get("rows", MASKED), ConfigError, "keys: a masked array"),
    ],
)
def test_calls_that_cannot_be(served, call, kind, words):
    """Given each wrong call. Expect its sentence."""
    with pytest.raises(kind, match=words):
        call(served)


def test_batches_are_told_apart_by_who_they_are(served):
    """Given two batches. Expect == and hash to work, as between any two objects."""
    one, two = served.sample("rows", 2), served.sample("rows", 2)
    assert one == one and one != two and len({one, two}) == 2


def test_numbers_of_half_a_float_are_numbers(served):
    """Given TD errors and priorities in bfloat16, which numpy has not got. Expect them taken."""
    batch, half = served.sample("rows", 4), torch.full((4,), 2.0, dtype=torch.bfloat16)
    assert priority_from_td(-half, 0.0).tolist() == [2.0] * 4
    assert served.update_priorities("rows", batch, half).applied == len(set(batch.keys.tolist()))


@pytest.mark.parametrize("gamma", [NAN, -0.1, 1.5, "a", None])
def test_gamma_is_a_discount(gamma):
    """Given a discount that makes returns of NaN, or that grows. Expect ConfigError."""
    table = Table("steps", step=spec_from(ChainEnv()), plan=NStep(2), capacity=1000)
    with Server([table]) as server, Client(server.address) as client:
        add_episode(client, "steps", 8)
        with pytest.raises(ConfigError, match=r"gamma is .*; expected a number from 0 to 1"):
            client.sample("steps", 2).transitions(gamma)


def test_one_table_is_a_list_of_one():
    """Given Server(table). Expect it served."""
    with Server(Table("alone", step=ROWS)) as server, Client(server.address) as client:
        assert client.table("alone").name == "alone"


@pytest.mark.parametrize("beta", [float("nan"), 1e9, -1.0, "much", None])
def test_beta_is_a_usable_exponent(served, beta):
    """Given an exponent that makes weights of NaN. Expect ConfigError, by sample and by batches."""
    with pytest.raises(ConfigError, match=r"beta is .*; expected a number from 0"):
        served.sample("rows", 4, beta=beta)
    with (
        pytest.raises(ConfigError, match=r"beta is .*; expected a number from 0"),
        served.batches("rows", 4, beta=lambda: beta) as batches,
    ):
        next(batches)
    if not callable(beta):
        with pytest.raises(ConfigError, match="beta is"):
            served.batches("rows", 4, beta=beta)


@pytest.mark.parametrize("batch", [1.5, 0, "8", None])
def test_a_batch_is_a_whole_number(served, batch):
    """Given a batch of 1.5 items and others. Expect ConfigError; numpy's integers will do."""
    with pytest.raises(ConfigError, match="expected a whole number from 1"):
        served.sample("rows", batch)
    assert len(served.sample("rows", np.int64(3))) == 3


def test_transitions_of_sequences(served):
    """Given a batch of sequences. Expect ConfigError that says what to do."""
    with pytest.raises(ConfigError, match="holds sequences, which are no transitions"):
        served.sample("sequences", 2).transitions(0.99)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(3, 2, dtype=torch.bfloat16), "numpy cannot hold Tensor of torch.bfloat16"),
        ([[1.0], [1.0, 2.0], [3.0]], "numpy cannot hold it"),
        (np.array([[1.0, np.nan]] * 3), r"got nan at \[0, 1\]"),
        (np.full((3, 2), 1e300), "float32 holds numbers up to"),
    ],
)
def test_what_extend_cannot_store(served, value, words):
    """Given each. Expect SpecError that names the column; a tensor in a graph is taken."""
    with pytest.raises(SpecError, match=f"'observation'.*{words}"):
        served.extend("rows", {"observation": value, "reward": np.ones(3)})
    graph = torch.ones(3, 2, requires_grad=True) * 2
    assert len(served.extend("rows", {"observation": graph, "reward": np.ones(3)})) == 3
    unchecked = {"observation": np.full((1, 2), np.inf), "reward": np.ones(1)}
    assert len(served.extend("rows", unchecked, finite_observations=False)) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("options", [{"device": "cuda"}, {"pin": True}, {"device": "gpu 7"}])
def test_a_device_that_is_not_there(served, options):
    """Given no GPU, or no such device. Expect one sentence, and nothing raised while it is
    collected."""
    unraisable = []
    before, sys.unraisablehook = sys.unraisablehook, lambda told: unraisable.append(told)
    try:
        with pytest.raises(ConfigError, match=r"sees no GPU here|device 'gpu 7'"):
            served.batches("rows", 4, **options)
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert not unraisable


def test_an_unknown_table_lists_those_there_are(served):
    """Given a wrong name. Expect the names of the server's tables."""
    with pytest.raises(
        UnknownTable, match=r"no table 'row' .* there are 'rows', 'actions', 'sequences'"
    ):
        served.table("row")


def test_a_closed_writer_takes_nothing(served):
    """Given a step right after close. Expect ClosedError at once, not when the block is full."""
    writer = served.writer("sequences")
    writer.add_step(np.int64(1), np.int64(0), np.int64(1), 1.0, True, False)
    writer.close()
    with pytest.raises(ClosedError, match="this writer is closed"):
        writer.add_step(np.int64(1), np.int64(0), np.int64(1), 1.0, True, False)


def test_a_closed_writer_says_writer(served):
    """Given a closed writer. Expect ClosedError that says writer, not client."""
    writer = served.writer("sequences")
    writer.close()
    with pytest.raises(ClosedError, match="this writer is closed"):
        writer.flush()


def test_a_pickled_client_keeps_its_options():
    """Given options of every kind. Expect a client that was pickled to have them."""
    table = Table("rows", step=ROWS)
    with Server([table], "udp://127.0.0.1:0") as server:
        options = {"connect_timeout": 2.5, "specs": {"rows": ROWS}, "batch_max": 100}
        with Client(server.address, timeout=3.0, **options) as client:
            again = pickle.loads(pickle.dumps(client))
        with again:
            assert again.timeout == 3.0 and again._connect_timeout == 2.5
            assert again._specs == {"rows": ROWS} and again._options["batch_max"] == 100


# -- command lines --------------------------------------------------------------------------------

SERVER = """
[server]
url = "udp://127.0.0.1:0"
weights_max = 1000
[[table]]
name = "main"
capacity = CAPACITY
columns = [{ name = "x", dtype = "float32", shape = [4] }]
"""


def run(*arguments, folder):
    command = [sys.executable, "-m", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("replay_server", "serve", "server.toml", "--capacity", "50", "--n-step", "2"),
            "--n-step, --capacity: for a table without a file; say it in server.toml",
        ),
        (("replay_server", "serve", "large.toml"), "capacity is 100000000000; expected a whole"),
        (("actor", "--number", "1"), "there are 1 actors, numbered from 0: say --actors 2"),
        (("deploy", "demo", "--env", "MountainCarContinuous-v0"), "DQN needs a Discrete"),
        (("actor", "--lr", "0.1"), "no option --lr; the nearest is --learning-rate"),
        (("learner", "evaluate", "runs/x"), "runs/x does not exist; name a run folder"),
        (("learner", "evaluate", "server.toml"), "server.toml is no checkpoint; name a run folder"),
        (("learner", "evaluate", "a.safetensors"), "no checkpoint at a.json: No such file or"),
        (("learner", "evaluate", "list.json"), "list.json: it is not what a learner writes; name"),
        (("actor", "--run", "/proc/x"), "no folder /proc/x can be made: No such file or directory"),
        (("learner", "train", "--run", "server.toml/x"), "can be made: Not a directory; name anot"),
        (("deploy", "demo", "--run", "/proc/x"), "no folder /proc/x can be made: No such file"),
        (("actor", "--run", "/proc/self"), "/proc/self/actor-0.lock: No such file or directory; n"),
        (("replay_server", "serve", "server.toml", "--writers", "2"), "--writers: for a table"),
        (("replay_server", "stats", "http://127.0.0.1:9/metrics"), "metrics: Connection refused"),
        (
            ("actor", "--server", "udp://127.0.0.1:9", "--patience", "0.1"),
            "no server answered at udp://127.0.0.1:9 within 0.1 s",
        ),
    ],
)
def test_a_command_that_cannot_be_ends_with_a_sentence(tmp_path, arguments, words):
    """Given each command. Expect its sentence, exit code 2 and no traceback."""
    (tmp_path / "server.toml").write_text(SERVER.replace("CAPACITY", "4096"))
    (tmp_path / "large.toml").write_text(SERVER.replace("CAPACITY", "100000000000"))
    (tmp_path / "a.safetensors").touch()
    (tmp_path / "list.json").write_text("[1]")
    ended = run(*arguments, folder=tmp_path)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert words in ended.stderr and "Traceback" not in ended.stderr, ended.stderr
    assert "Errno" not in ended.stderr


def test_output_that_nobody_reads_ends_serve_with_a_sentence(tmp_path):
    """Given `serve | head -1`. Expect no traceback once the pipe is closed."""
    (tmp_path / "server.toml").write_text(SERVER.replace("CAPACITY", "4096"))
    command = [sys.executable, "-m", "replay_server", "serve", tmp_path / "server.toml"]
    reader, pipe = os.pipe()
    os.close(reader)
    process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=subprocess.PIPE, text=True)
    os.close(pipe)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2 and "Traceback" not in said and "Exception" not in said, said
    assert said.strip() == "replay-server: nobody reads the output any more: stopped"


def test_nstep_is_still_transitions():
    """Given the plan that transitions are for. Expect them."""
    table = Table("main", step=spec_from(ChainEnv()), plan=NStep(2), capacity=1000)
    with Server([table]) as server, Client(server.address) as client:
        add_episode(client, "main", 6)
        assert client.sample("main", 4).transitions(0.99).rewards.shape == (4,)


def test_a_wait_that_is_ended_says_so():
    """Given a program asked to stop while no server answers. Expect that, and no other advice."""
    stop = Stop()
    stop.event.set()
    with pytest.raises(NoServer, match=r"stopped after \d+ s; no server had answered at udp://"):
        connect("udp://127.0.0.1:9", 600.0, stop)


def test_the_demo_says_what_was_judged():
    """Given no evaluation, and one with many digits. Expect words, and one digit."""
    nothing = {"eval_return_mean": None, "train_seconds": None}
    assert _judged(nothing) == "no greedy evaluation yet"
    judged = {"eval_return_mean": 487.123456, "train_seconds": 61.23456}
    assert _judged(judged) == "mean greedy return 487.1 after 61.2 s"


def floats(count=None, **changed):
    """One step of observations of two floats."""
    lead = () if count is None else (count,)
    flags = np.zeros(lead, np.bool_) if lead else False
    observation = np.ones((*lead, 2), np.float32)
    calm = {"observation": observation, "action": np.zeros(lead, np.int64), "terminated": flags}
    calm |= {"next_observation": observation.copy(), "reward": np.ones(lead), "truncated": flags}
    return calm | changed


@pytest.fixture
def tiny():
    """A client of a table of 64 steps of two floats."""
    kinds = {"observation": (np.float32, (2,)), "action": (np.int64,), "reward": (np.float32,)}
    columns = [Column(name, *kind) for name, kind in kinds.items()]
    spec = Spec([*columns, Column("terminated", np.bool_)])
    table = Table("tiny", step=spec, plan=NStep(3), capacity=64, writers=2)
    with Server([table], "loopback://tiny") as server, Client(server.address) as client:
        yield client


@pytest.mark.parametrize("name", ["observation", "action", "reward", "terminated"])
@pytest.mark.parametrize("count", [None, 1, 2])
def test_masked_arrays_are_refused(tiny, count, name):
    """Given a step with a masked array, or the masked constant, by `add` of one environment and
    `add_batch` of two. Expect SpecError, and nothing taken."""
    with tiny.writer("tiny", count, autoreset=None if count is None else "disabled") as writer:
        add = writer.add_batch if count == 2 else writer.add
        lead = 2 if count == 2 else None
        given = np.asarray(floats(lead)[name])
        for value in (np.ma.masked_array(given, mask=True), np.ma.masked):
            with pytest.raises(SpecError, match=f"'{name}': a masked array, whose hidden"):
                add(**floats(lead, **{name: value}))
        add(**floats(lead))
        assert writer.flush().steps_stored == (count or 1)


@pytest.mark.parametrize("count", [None, 2])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_a_next_observation_of_a_wrong_shape_is_found_at_any_step(tiny, count, kind):
    """Given one at the twentieth step of an episode. Expect SpecError there, nothing taken, and the
    writer to go on."""
    with tiny.writer("tiny", count, autoreset=None if count is None else "disabled") as writer:
        add = writer.add if count is None else writer.add_batch
        for _ in range(20):
            add(**floats(count))
        wrong = kind(np.ones((*((count,) if count else ()), 3), np.float32))
        for _ in range(2):
            with pytest.raises(SpecError, match=r"^next_observation: .*expected shape"):
                add(**floats(count, next_observation=wrong))
        add(**floats(count))
        assert writer.flush().steps_stored == 21 * (count or 1)


def test_items_that_fail_in_a_tiny_table_are_told_as_it_happens(tiny):
    """Given a writer whose windows another one overwrites. Expect the warning from `add`, once, and
    not at the end alone."""
    slow, fast = tiny.writer("tiny"), tiny.writer("tiny")
    told, steps = [], 0
    while not told and steps < 200:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            slow.add(**floats())
            slow.send()
        for _ in range(70):
            fast.add(**floats())
        fast.flush()
        steps += 1
    assert [each.category for each in told] == [ItemsFailed], steps
    assert "items can never be drawn" in str(told[0].message) and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        slow.close()
        fast.close()


def test_a_copied_writer_would_share_its_session(tiny):
    """Given `copy.copy`, which no pickle is needed for. Expect the refusal of a pickle, of a writer
    and of batches, and both of use."""
    with tiny.writer("tiny") as writer:
        for _ in range(20):
            writer.add(**floats())
        writer.flush()
        with tiny.batches("tiny", 4) as batches:
            for whole in (writer, batches):
                with pytest.raises(TypeError, match="cannot be pickled or copied"):
                    copy.copy(whole)
            assert len(next(batches)) == 4
        with pytest.raises(ConfigError, match="ready is None; expected what `add`"):
            writer.create_items(None)
        writer.add(**floats())
        assert writer.flush().steps_stored == 21
