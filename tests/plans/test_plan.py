"""Plans: what ships is sound, and every mistake is a sentence with the line and the nearest value.

Oracle of the graph: the edges as a person reads them in replay_server/training/loop.py.
"""

from __future__ import annotations

import pathlib
import re

import pytest

from deploy import demo
from deploy.explain import explained
from deploy.graph import Edge, graph, graph_of
from deploy.launch import commands, shares
from deploy.plan import POLICIES, PlanError, load, shipped

EDGES = {
    ("weights", "inference"): {"newest"},
    ("weights", "learner"): {"newest"},
    ("actor", "inference"): {"held", "observations", "finals"},
    ("inference", "actor"): {"renewed", "values", "closing"},
    ("actor", "environments"): {"actions"},
    ("environments", "actor"): {"outcome"},
    ("actor", "replay"): {"items", "rows", "priorities"},
    ("replay", "actor"): {"ready"},
    ("replay", "learner"): {"batch"},
    ("learner", "weights"): {"gradients"},
    ("learner", "replay"): {"priorities"},
}


def test_the_graph_is_that_of_the_loop():
    """Given the loop's source. Expect its six fragments, and the edges that a person reads there,
    each with a type."""
    found = graph()
    assert set(found.fragments) == {
        *("environments", "inference", "actor", "replay", "learner", "weights"),
    }
    joined = {}
    for edge in found.edges:
        joined.setdefault((edge.source, edge.target), set()).add(edge.name)
        assert edge.kind
    assert joined == EDGES


def test_a_line_changed_in_the_loop_is_an_edge_changed():
    """Given a loop of two lines, and the same with what is handed on taken away. Expect one edge,
    then none."""
    loop = """
def collect(one: Any, two: Any) -> None:
    thing: Thing = one.make()
    two.take({})

def learn(three: Any) -> None:
    three.rest()
"""
    assert graph_of(loop.format("thing")).edges == (Edge("one", "two", "thing", "Thing"),)
    assert graph_of(loop.format("")).edges == ()
    assert graph_of(loop.format("thing")).fragments == ("one", "two", "three")


def test_each_policy_ships_under_its_name():
    """Given the plans that ship. Expect one for each policy, with every fragment in one place, and
    a text that names all of its edges."""
    assert shipped() == sorted(POLICIES)
    for name in shipped():
        plan = load(name)
        assert plan.policy == name
        placed = [fragment for process in plan.processes for fragment in process.fragments]
        assert sorted(placed) == sorted(graph().fragments)
        told = explained(plan)
        assert len(re.findall(r"\+-+\+\n", told)) == 2 * len(plan.processes)
        for edge in graph().edges:
            assert re.search(rf"{edge.source} +{edge.target} +{edge.name} ", told)


PLAN = """# a comment
policy = "single-learner-coarse"
transport = "udp"

[[process]]
fragments = ["environments", "inference", "actor"]
replicas = 2

[[process]]
fragments = ["replay"]
port = 7400

[[process]]
fragments = ["learner", "weights"]
"""
CUDA, TURNS = "cuda.toml", "turns.toml"
PLAN_OF_TWO, ACTORS_OF_FILE = "two.toml", "options.toml"
WRONG = {
    "no policy": ('policy = "single-learner-coarse"', "", "line 1: policy is None; expected one"),
    "a policy's name": (
        "single-learner-coarse",
        "single-learner-coars",
        "line 2: no policy .*coarse'",
    ),
    "a key": ("transport =", "transprt =", "line 3: no key 'transprt'; the nearest is 'transport'"),
    "a transport": ('"udp"', '"upd"', "line 3: no transport 'upd'; the nearest is 'udp'"),
    "a transport within": (
        '"udp"',
        '"loopback"',
        "line 3: transport 'loopback': .* 'udp'",
    ),
    "a fragment": ('"inference"', '"inferense"', "line 6: no fragment 'inferense'; .*'inference'"),
    "a key of a process": ("replicas", "replcas", "line 7: no key 'replcas'; .* 'replicas'"),
    "no replicas": ("replicas = 2", "replicas = 0", "line 7: replicas is 0; .* nearest is 1"),
    "half a replica": ("replicas = 2", "replicas = 1.5", "line 7: replicas is 1.5; expected 1"),
    "two servers": ("port = 7400", "replicas = 2", "line 11: replicas is 2: .* replay 1 time"),
    "a port": ("7400", "70000", "line 11: port is 70000; .* the nearest is 65535"),
    "doubled": ('["replay"]', '["replay", "actor"]', "line 10: .*'actor' stands in line 6 already"),
    "missing": (
        '"learner", "weights"',
        '"learner"',
        "no process has fragment 'weights'; it",
    ),
    "another cut": (
        '"actor"]',
        '"actor", "replay"]',
        "line 10: .*'replay' stands in line 6",
    ),
    "a device": ("port = 7400", 'device = "gpu"', "line 11: device 'gpu'; expected cpu, cuda"),
    "a flag": ('transport = "udp"', "synchronous = 1", "line 3: synchronous is 1; expected true"),
    "an engine": ('transport = "udp"', 'engine = "rai"', "line 3: no engine 'rai'; .* is 'ray'"),
    "no cpus": ("replicas = 2", "cpus = 0", "line 7: cpus is 0; expected 1 to 1,024"),
    "a device of no nets": ("replicas = 2", 'device = "cuda"', "line 7: device 'cuda': .* process"),
    "compiled, half": ("replicas = 2", "compile = 1", "line 7: compile is 1; expected true or"),
    "nothing to compile": ("replicas = 2", "compile = true", "line 7: compile is true: .* false"),
    "a port of nothing": ("replicas = 2", "port = 7500", "line 6: port is 7500, and .* at none"),
    "a port past the kernel": ('"udp"', '"dpdk"', "line 10: port is 7400, and replay .* over dpdk"),
    "what a plan has not": ("replicas = 2", "host = 3", "line 7: no key 'host'"),
    "turns of several": (
        'transport = "udp"',
        "synchronous = true",
        "line 3: synchronous is true, which takes one learner",
    ),
    "no list": ('["replay"]', '"replay"', "line 10: a process needs fragments"),
    "no processes": (PLAN[PLAN.index("[[") :], "", r"a plan has a \[\[process\]\]"),
    "not TOML": ("[[process]]", "[[process", "not TOML"),
    "a policy of numbers": ('"single-learner-coarse"', "7", "line 2: policy is 7; expected one of"),
    "a fragment of numbers": ('["replay"]', "[3]", "line 10: fragment is 3; expected one of"),
    "a process in a line": (PLAN[PLAN.index("[[") :], "process = [3]", r"line 5: .* \[\[process"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_names_line_rule_and_nearest_value(tmp_path, case):
    """Given a plan with one mistake. Expect PlanError that begins with the file."""
    before, after, words = WRONG[case]
    path = tmp_path / "plan.toml"
    text = PLAN.replace('"learner", "weights"]', '"learner", "weights"]\nreplicas = 2')
    several = text.replace("single-learner-coarse", "multiple-learners")
    text = several if case == "turns of several" else PLAN
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(PlanError, match=f"{re.escape(str(path))}.*{words}"):
        load(str(path))
    path.write_text(PLAN)
    assert load(str(path)).process_of("actor").replicas == 2


def test_a_cut_of_another_policy_is_named(tmp_path):
    """Given the processes of one policy under the name of another. Expect the one that it is."""
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace("single-learner-coarse", "central"))
    with pytest.raises(PlanError, match=r"not learner \+ weights; this cut is policy 'single-le"):
        load(str(path))


def test_two_processes_on_one_port_are_refused(tmp_path):
    """Given replicas whose ports run into the server's. Expect the line and the next free one."""
    path = tmp_path / "plan.toml"
    text = pathlib.Path(load("environments").path).read_text()
    text = text.replace('["replay"]', '["replay"]\nport = 7400')
    path.write_text(text.replace("replicas = 2", "replicas = 2\nport = 7399"))
    with pytest.raises(PlanError, match=r"line \d+: port 7400 .* line 9 has it; .* one is 7401"):
        load(str(path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan", "central-one"], "no plan 'central-one'; the nearest is 'central'"),
        (["--plan", "none.toml"], "none.toml: No such file"),
        (
            ["--preset", "cartpole-ppo", "--rollout", "1000", "--capacity", "100000"],
            "--rollout 1000 .*at most 4096",
        ),
        (["--resume=runs/x"], "this begins a run; to go on .* learner train --resume FOLDER"),
        (["--plan", "gpu-only", "--transport", "udp"], "meet over loopback"),
        (["--plan", "central", "--transport", "loopback"], "meet over udp, zmq, dpdk"),
        (["--plan", "environments", "--actors", "2"], "which has 1 actor; more workers are repl"),
        (["--plan", "multiple-learners", "--batch", "33"], "2 learners who share it; .* is 32"),
        (["--plan", TURNS, "--envs", "64", "--steps-ahead", "64"], "64 environments step before"),
    ],
)
def test_the_command_refuses_before_anything_starts(words, said, capsys, tmp_path):
    """Given a plan that is none, a transport it has not, settings that do not fit it. Expect one
    sentence and exit code 2."""
    turns = PLAN.replace("replicas = 2", "").replace("transport", "synchronous = true\ntransport")
    (tmp_path / TURNS).write_text(turns)
    words = [str(tmp_path / word) if word == TURNS else word for word in words]
    with pytest.raises(SystemExit) as ended:
        demo.main([*words, "--explain"], command="run")  # which runs nothing
    told = capsys.readouterr().err
    assert ended.value.code == 2 and re.search(said, told) and told.count("\n") == 1, told


def test_a_device_that_is_not_there_is_refused_and_explained(tmp_path, capsys):
    """Given a plan for a host with many GPUs. Expect its graph on any host; to start it here, one
    sentence before there is a folder."""
    (tmp_path / CUDA).write_text(PLAN.replace('"weights"]', '"weights"]\ndevice = "cuda:99"'))
    words = ["--plan", str(tmp_path / CUDA), "--run", str(tmp_path / "run")]
    demo.main([*words, "--explain"], command="run")
    assert "learner, cuda:99" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        demo.main(words, command="run")
    told = capsys.readouterr().err
    assert ended.value.code == 2 and "line 14: device 'cuda:99'" in told and told.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "replicas"),
    [
        (["--plan", PLAN_OF_TWO], 2),
        (["--plan", PLAN_OF_TWO, "--actors", "3"], 3),
        (["--config", ACTORS_OF_FILE], 4),
        (["--config", ACTORS_OF_FILE, "--actors", "3"], 3),
        (["--config", ACTORS_OF_FILE, "--plan", PLAN_OF_TWO], 2),
    ],
)
def test_actors_asked_for_are_the_plans_replicas(words, replicas, tmp_path):
    """Given actors in a plan, in a file of options, on the command line. Expect the last word to be
    the command line's, then the plan's where that is named there; and settings that say the
    same."""
    (tmp_path / PLAN_OF_TWO).write_text(PLAN)
    (tmp_path / ACTORS_OF_FILE).write_text("[demo]\nactors = 4\n")
    words = [str(tmp_path / word) if word.endswith(".toml") else word for word in words]
    _, settings, _, plan = demo.parsed([*words, "--run", str(tmp_path / "run")], "run")
    assert plan.process_of("actor").replicas == settings.actors == replicas


def test_environments_are_shared_out_among_their_workers(tmp_path):
    """Given eight environments and three workers, and two for three. Expect 3, 3, 2; and a
    sentence with the nearest number."""
    assert shares(8, 3) == [3, 3, 2]
    path = tmp_path / "plan.toml"
    text = (pathlib.Path(load("environments").path)).read_text()
    path.write_text(text.replace("replicas = 2", "replicas = 3"))
    found = commands(load(str(path)), tmp_path, 8, "CartPole-v1", "sticky")
    workers = [command for command in found if command.kind == "environments"]
    assert [w.words[w.words.index("--envs") + 1] for w in workers] == ["3", "3", "2"]
    for flag, value in (("--env", "CartPole-v1"), ("--protocol", "sticky")):
        assert {w.words[w.words.index(flag) + 1] for w in workers} == {value}
    actor = next(command for command in found if command.kind == "actor")
    urls = actor.words[actor.words.index("--environments") + 1].split(",")
    assert urls == [w.words[w.words.index("--serve") + 1] for w in workers]
    with pytest.raises(PlanError, match=r"3 workers for 2 environments: .* replicas = 2"):
        commands(load(str(path)), tmp_path, 2, "CartPole-v1", "sticky")


def test_inference_beside_the_learner_is_one_program(tmp_path):
    """Given the plan that has it there. Expect workers and one program that is handed their
    addresses; and no actor or learner beside it."""
    plan = load("single-learner-fine")
    *workers, both = commands(plan, tmp_path, 8, "CartPole-v1", "sticky")
    assert {worker.kind for worker in workers} == {"environments"} and both.kind == "together"
    assert both.words[0] == "together" and both.served
    urls = both.words[both.words.index("--environments") + 1].split(",")
    assert urls == [worker.words[worker.words.index("--serve") + 1] for worker in workers]


PORTS = """policy = "{policy}"
{turns}
[[process]]
fragments = ["environments", "inference", "actor"]
replicas = 2

[[process]]
fragments = ["replay"]

[[process]]
fragments = ["learner"{also}]
replicas = 2
device = "cuda"
{port}
{weights}
"""
WEIGHTS = """[[process]]
fragments = ["weights"]
device = "cpu"
port = 7500
"""


def words_of(command):
    """{flag: value} of a command, and its first words."""
    first = [word for word in command.words if not word.startswith("-")]
    flags = dict(zip(command.words, command.words[1:], strict=False))
    return {k: v for k, v in flags.items() if k.startswith("--")}, first


def test_learners_that_are_one_meet_at_the_port_of_their_plan(tmp_path):
    """Given two averaged learners with a port and a device. Expect both to be told both, each its
    rank, and nobody else."""
    path = tmp_path / "plan.toml"
    averaged = {"policy": "multiple-learners", "also": ', "weights"', "port": "port = 7400"}
    path.write_text(PORTS.format(**averaged, turns="", weights=""))
    found = {c.name: c for c in commands(load(str(path)), tmp_path, 8, "CartPole-v1", "sticky")}
    assert list(found) == ["learner", "learner-1", "actor-0", "actor-1"]
    for rank, name in enumerate(["learner", "learner-1"]):
        variables = found[name].variables
        assert variables["MASTER_PORT"] == "7400" and variables["WORLD_SIZE"] == "2"
        assert variables["RANK"] == variables["LOCAL_RANK"] == str(rank)
        assert words_of(found[name])[0]["--device"] == "cuda" and found[name].served
    for number in (0, 1):
        actor = found[f"actor-{number}"]
        assert words_of(actor)[0]["--number"] == str(number)
        assert not actor.variables and "--device" not in actor.words and actor.served


def test_learners_of_weights_elsewhere_are_told_where(tmp_path):
    """Given weights at a port, and two learners on another device. Expect the one to serve there,
    the others to come there, numbered from 1, each on its own device."""
    path = tmp_path / "plan.toml"
    path.write_text(PORTS.format(policy="central", also="", port="", turns="", weights=WEIGHTS))
    found = {c.name: c for c in commands(load(str(path)), tmp_path, 8, "CartPole-v1", "sticky")}
    assert list(found) == ["learner", "learner-1", "learner-2", "actor-0", "actor-1"]
    kept = words_of(found["learner"])[0]
    assert (kept["--gradients"], kept["--device"]) == ("tcp://127.0.0.1:7500", "cpu")
    for number in (1, 2):
        words = words_of(found[f"learner-{number}"])[0]
        assert (words["--central"], words["--device"]) == ("tcp://127.0.0.1:7500", "cuda")
        assert words["--number"] == str(number)


def test_workers_take_ports_one_after_another(tmp_path):
    """Given workers from a port on. Expect one for each replica, and none past the last."""
    text = pathlib.Path(load("environments").path).read_text()
    path = tmp_path / "plan.toml"
    path.write_text(text.replace("replicas = 2", "replicas = 2\nport = 7500"))
    found = commands(load(str(path)), tmp_path, 8, "CartPole-v1", "sticky")
    serves = [words_of(c)[0]["--serve"] for c in found if c.kind == "environments"]
    assert serves == ["tcp://127.0.0.1:7500", "tcp://127.0.0.1:7501"]
    path.write_text(text.replace("replicas = 2", "replicas = 2\nport = 65535"))
    with pytest.raises(PlanError, match=r"there is none above 65,535; the nearest .* is 65534"):
        load(str(path))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_turns_are_told_to_both_ends(tmp_path, policy):
    """Given each policy in turns. Expect one address for all actors and the learner; or the plan
    refused, where there are several learners; in one process nobody is told."""
    path = tmp_path / "plan.toml"
    text = pathlib.Path(load(policy).path).read_text()
    path.write_text("synchronous = true\n" + text)
    if policy in ("central", "multiple-learners"):
        with pytest.raises(PlanError, match="synchronous is true, which takes one learner"):
            load(str(path))
        return
    plan = load(str(path))
    assert "collecting and learning go in turns" in explained(plan)
    if policy == "gpu-only":
        return
    turning = [c for c in commands(plan, tmp_path, 8, "CartPole-v1", "sticky") if c.served]
    assert len({words_of(c)[0]["--turns"] for c in turning}) == 1


STARTED = {  # the fragments that a command of each kind runs, whichever the plan
    "environments": {"environments"},
    "server": {"replay"},
    "weights": {"weights"},
    "together": {"inference", "actor", "learner", "weights"},
}


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"gpu-only"}))
def test_what_starts_is_what_the_plan_says(tmp_path, policy):
    """Given each plan that ships. Expect its processes to be those that are started, as often as it
    says: so that no fragment stays behind in another one."""
    plan = load(policy)
    found = commands(plan, tmp_path, 8, "CartPole-v1", "sticky")
    counted = {("replay",): 1}
    for command in found:
        has = set(STARTED.get(command.kind, ()))
        if command.kind == "actor":
            has = {"inference", "actor"}
            has |= set() if "--environments" in command.words else {"environments"}
        if command.kind == "learner":
            has = {"learner"} if "--central" in command.words else {"learner", "weights"}
        key = next(p.fragments for p in plan.processes if set(p.fragments) == has)
        counted[key] = counted.get(key, 0) + 1
    assert counted == {process.fragments: process.replicas for process in plan.processes}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_plan_is_explained_as_it_was_read_by_a_person(policy):
    """Given each plan that ships. Expect the text that stands in explained/, which was read."""
    expected = pathlib.Path(__file__).parent / "explained" / f"{policy}.txt"
    assert explained(load(policy)) + "\n" == expected.read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[learner]\ndevice = "cuda:7"\n', r"\[learner\] device = 'cuda:7': that is the plan's"),
        ('[actor]\nenvironments = "tcp://127.0.0.1:9"\n', r"\[actor\] environments = "),
        ('[learner]\ncentral = "tcp://127.0.0.1:9"\nnumber = 1\n', r"\[learner\] (central|number)"),
    ],
)
def test_what_a_plan_decides_is_refused_in_a_file(text, said, tmp_path, capsys):
    """Given a file of options that would undo the plan's cut. Expect a sentence, and nothing
    started."""
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(SystemExit):
        demo.main(["--config", str(path), "--explain"], command="run")
    assert re.search(said, capsys.readouterr().err)


def test_a_plan_that_is_named_brings_its_transport(tmp_path):
    """Given a file with a transport, and a plan with another on the command line. Expect the
    plan's; and that of the command line where one is named there too."""
    path, plan = tmp_path / "run.toml", tmp_path / "plan.toml"
    path.write_text('[demo]\ntransport = "loopback"\n')
    plan.write_text(PLAN.replace('"udp"', '"zmq"').replace("port = 7400", ""))
    words = ["--config", str(path), "--plan", str(plan), "--run", str(tmp_path / "run")]
    assert demo.parsed(words, "run")[3].transport == "zmq"
    assert demo.parsed([*words, "--transport", "udp"], "run")[3].transport == "udp"


def test_the_order_of_fragments_says_nothing(tmp_path):
    """Given a plan with its fragments in another order. Expect the same plan, and the same
    commands."""
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(PLAN)
    acting = '"environments", "inference", "actor"'
    text = PLAN.replace(acting, '"actor", "environments", "inference"')
    other.write_text(text.replace('"learner", "weights"', '"weights", "learner"'))
    plans = [load(str(path)) for path in (one, other)]
    assert plans[0].processes == plans[1].processes
    names = [[c.name for c in commands(p, tmp_path, 8, "CartPole-v1", "sticky")] for p in plans]
    assert names[0] == names[1] == ["learner", "actor-0", "actor-1"]


@pytest.mark.parametrize(
    "text",
    [
        "[learner]\nupdates = 50\n",
        "[learner]\nlearning_rate = 1e-9\n",
        "[actor]\nepsilon_base = 0.9\n",
    ],
)
def test_options_of_one_program_are_refused_where_all_are_one(text, tmp_path, capsys):
    """Given options that only actor or learner is to have, and a plan of one process. Expect a
    sentence; and what a run writes of itself to start it again."""
    path = tmp_path / "run.toml"
    path.write_text(text)
    words = ["--config", str(path), "--plan", "gpu-only", "--explain"]
    with pytest.raises(SystemExit):
        demo.main(words, command="run")
    assert "are one program under this plan" in capsys.readouterr().err


def test_ppo_in_turns_is_held_to_no_ratio(tmp_path):
    """Given turns, more environments than --steps-ahead has steps, and one that learns from
    rollouts. Expect no refusal: what may be ahead there is the queue's to say."""
    turns = PLAN.replace("replicas = 2", "").replace("transport", "synchronous = true\ntransport")
    (tmp_path / TURNS).write_text(turns)
    words = [
        "--plan",
        str(tmp_path / TURNS),
        "--run",
        str(tmp_path / "run"),
        "--preset",
        "cartpole",
    ]
    more = ["--envs", "1100", "--capacity", "400000"]
    assert demo.parsed([*words, *more, "--algorithm", "ppo", "--batch", "8"], "run")[1].envs == 1100
    with pytest.raises(SystemExit):
        demo.parsed([*words, *more], "run")


def test_a_preset_is_solved_in_its_own_environment_alone(tmp_path):
    """Given a preset with another environment. Expect no mark, unless one is given; and
    --require-solved refused without one."""
    words = ["--preset", "pendulum", "--env", "MountainCarContinuous-v0"]
    words += ["--run", str(tmp_path / "run")]
    args, settings, _, _ = demo.parsed(words, "run")
    assert settings.mark is None and args.solve_at is None
    assert demo.parsed([*words, "--solve-at", "90"], "run")[0].solve_at == 90.0
    assert demo.parsed(words[:2], "run")[0].solve_at == -200.0
    with pytest.raises(SystemExit):
        demo.parsed([*words, "--require-solved"], "run")
