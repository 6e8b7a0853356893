"""Networks, their weights as bytes, checkpoints and presets."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest
import torch
from given import transitions

from learner import checkpoint, optimizing
from learner.algorithms import algorithm_from
from replay_server.returns import leaves
from replay_server.spec import Column, Spec, SpecError
from replay_server.training import weights
from replay_server.training.actions import Bounds
from replay_server.training.networks import network_from
from replay_server.training.presets import PRESETS, changed, preset
from replay_server.training.weights import WeightsError


def spec_of(*columns):
    return Spec(columns)


VECTOR = spec_of(Column("observation", "float32", (4,)))
IMAGE = spec_of(Column("observation", "uint8", (84, 84)))
COLOUR = spec_of(Column("observation", "uint8", (64, 48, 3)))
STATE = spec_of(Column("observation", "int64"))
NESTED = spec_of(Column("observation/a", "float32", (2, 3)), Column("observation/b", "int8"))


def some(spec, batch, stack):
    rng = np.random.default_rng(1)
    return {
        c.name: torch.from_numpy(rng.integers(0, 6, (batch, stack, *c.shape)).astype(c.dtype))
        for c in spec
    }


@pytest.mark.parametrize(
    ("kind", "spec", "stack"),
    [
        ("mlp", VECTOR, 1),
        ("mlp", VECTOR, 4),
        ("mlp", NESTED, 2),
        ("nature", IMAGE, 4),
        ("nature", COLOUR, 2),
        ("linear", STATE, 1),
    ],
)
def test_every_network_gives_one_value_an_action(kind, spec, stack):
    """Given each network over columns and stacks that suit it. Expect one float32 an action, for
    bare rows too where the stack is 1, and gradients that flow."""
    network = network_from(kind, spec, 5, stack=stack, states=6)
    q = network(leaves("observation", some(spec, 3, stack)))
    assert q.shape == (3, 5) and q.dtype == torch.float32
    if stack == 1:  # as transitions have it, without the axis of frames
        bare = {name: part[:, 0] for name, part in some(spec, 3, 1).items()}
        assert torch.equal(network(leaves("observation", bare)), q)
    q.sum().backward()


def test_nature_has_the_published_sizes():
    """Given the network for images. Expect the three convolutions of Mnih et al."""
    shapes = [tuple(p.shape) for p in network_from("nature", IMAGE, 6, stack=4).parameters()]
    assert (32, 4, 8, 8) in shapes and (64, 32, 4, 4) in shapes and (64, 64, 3, 3) in shapes


def test_colours_and_frames_become_channels_in_order():
    """Given images that differ in one colour of one frame. Expect the first layer to see them."""
    network = network_from("nature", COLOUR, 2, stack=2, seed=3)
    base = some(COLOUR, 1, 2)["observation"]
    images = base.repeat(6, 1, 1, 1, 1)
    for i in range(6):
        images[i, i // 3, :, :, i % 3] += 100
    seen = []
    first = network.convolutions[0]
    first.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    network(images)
    for i in range(6):
        changed_channels = (seen[0][i] != seen[0][i - 1]).flatten(1).any(1).nonzero().flatten()
        assert i in changed_channels.tolist()
    assert seen[0].max() <= 1.0


def test_the_dueling_head_ignores_what_all_advantages_share():
    """Given a constant added to all advantages. Expect the same values."""
    network = network_from("mlp", VECTOR, 3, seed=1)
    observation = some(VECTOR, 4, 1)["observation"]
    before = network(observation)
    with torch.no_grad():
        network.head.advantage.bias += 7.0
    assert torch.allclose(network(observation), before, atol=1e-5)


def test_the_linear_network_is_a_table_of_zeros():
    """Given a new linear network, then one weight of it set. Expect zeros everywhere, then that
    value for its state and action alone."""
    network = network_from("linear", STATE, 2, states=6)
    assert not network(torch.arange(6)).any()
    with torch.no_grad():
        network.table.weight[1, 4] = 2.5
    q = network(torch.arange(6))
    assert q[4, 1] == 2.5 and q.count_nonzero() == 1


def test_seeds_fix_the_weights_and_leave_the_global_generator_alone():
    """Given two networks of one seed and one of another. Expect the two equal, the third different,
    and torch's own generator where it was."""
    torch.manual_seed(9)
    expected = torch.rand(1)
    torch.manual_seed(9)
    a, b = (network_from("mlp", VECTOR, 2, seed=4).state_dict() for _ in range(2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert torch.equal(torch.rand(1), expected)
    other = network_from("mlp", VECTOR, 2, seed=5).state_dict()
    assert not torch.equal(a["trunk.0.weight"], other["trunk.0.weight"])


def test_networks_that_do_not_suit_the_columns_are_refused():
    """Given networks with columns they cannot read, a kind that does not exist, no actions. Expect
    SpecError that says what is expected."""
    for kind, spec, words in [
        ("transformer", VECTOR, "expected one of mlp"),
        ("nature", VECTOR, "takes one column"),
        ("nature", NESTED, "takes one column"),
        ("nature", spec_of(Column("observation", "uint8", (84, 35))), "36 by 36 at least"),
        ("nature", spec_of(Column("observation", "uint8", (3, 84, 84))), "move its channels last"),
        ("nature", spec_of(Column("observation", "float32", (84, 84))), "takes uint8 images"),
        ("linear", VECTOR, "takes one column"),
        ("linear", spec_of(Column("observation", "float32")), "an integer column"),
    ]:
        with pytest.raises(SpecError, match=words):
            network_from(kind, spec, 2, states=6)
    with pytest.raises(SpecError, match="at least one action"):
        network_from("mlp", VECTOR, 0)


def test_the_least_image_of_the_nature_network_has_36_pixels_a_side():
    """Given images of 36 by 36. Expect the network to take them."""
    network = network_from("nature", spec_of(Column("observation", "uint8", (36, 36))), 2)
    assert network(torch.zeros(3, 1, 36, 36)).shape == (3, 2)


def test_a_state_that_the_linear_network_has_no_place_for_is_named():
    """Given states of a table of six, one beyond it. Expect values for those inside, and SpecError
    with what was seen, what there is and the option to change."""
    network = network_from("linear", STATE, 2, states=6)
    assert network(torch.tensor([[5], [0]])).shape == (2, 2)
    with pytest.raises(SpecError, match=r"states 2 to 6, and .* 0 to 5; say more --states"):
        network(torch.tensor([[2], [6]]))


def test_weights_survive_the_way_through_bytes():
    """Given a network's weights as bytes, made twice. Expect equal bytes, the document back, and
    another network that loads them equal to the first."""
    network = network_from("mlp", VECTOR, 2, seed=1)
    data = weights.to_bytes(network.state_dict(), 1234, {"commit": "abc"})
    assert data == weights.to_bytes(network.state_dict(), 1234, {"commit": "abc"})
    tensors, document = weights.from_bytes(data)
    assert document == {"commit": "abc", "learner_step": 1234}
    other = network_from("mlp", VECTOR, 2, seed=2)
    weights.load_into(other, tensors)
    assert all(
        torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=1)
    )


def test_bytes_that_are_not_weights_are_refused():
    """Given bytes cut short, headers that lie, and 300 flipped bits. Expect WeightsError, or
    weights where the flip hit a value, and never another exception."""
    good = weights.to_bytes({"a": torch.zeros(3)}, 1)
    size = int.from_bytes(good[:8], "little")
    header = json.loads(good[8 : 8 + size])
    rest = good[8 + size :]

    def rebuilt(document):
        text = json.dumps(document).encode()
        return len(text).to_bytes(8, "little") + text + rest

    unnamed = {k: v for k, v in header.items() if k != "__metadata__"}
    negative = {**header, "__metadata__": {"learner": '{"learner_step": -1}'}}
    far = {**header, "a": {**header["a"], "data_offsets": [0, 1 << 40]}}
    for data in [b"", b"1234567", good[:20], good[:-1], rebuilt(unnamed), rebuilt(negative)]:
        with pytest.raises(WeightsError):
            weights.from_bytes(data)
    for data in [rebuilt(far), (1 << 62).to_bytes(8, "little") + good[8:], rebuilt([1])]:
        with pytest.raises(WeightsError):
            weights.from_bytes(data)
    assert weights.from_bytes(rebuilt(header))[1] == {"learner_step": 1}
    rng = np.random.default_rng(2)
    for _ in range(300):
        flipped = bytearray(good)
        flipped[int(rng.integers(len(good)))] ^= 1 << int(rng.integers(8))
        with contextlib.suppress(WeightsError):
            weights.from_bytes(bytes(flipped))


def test_weights_of_another_network_are_refused_by_name():
    """Given weights that lack a tensor, have one more, or one of another shape. Expect WeightsError
    that names it, and the network as it was."""
    network = network_from("mlp", VECTOR, 2)
    before = {name: t.clone() for name, t in network.state_dict().items()}
    state = network.state_dict()
    for tensors, words in [
        ({k: v for k, v in state.items() if k != "head.value.bias"}, "lack 'head.value.bias'"),
        ({**state, "more": torch.zeros(1)}, "hold 'more'"),
        ({**state, "trunk.0.weight": torch.zeros(128, 5)}, "expected torch.float32 \\[128, 4\\]"),
    ]:
        with pytest.raises(WeightsError, match=words):
            weights.load_into(network, tensors)
    assert all(torch.equal(t, before[name]) for name, t in network.state_dict().items())


def trained(seed, steps, folder=None, resume=None, name="cartpole"):
    """A few updates on made-up batches, by the preset `name`; returns the losses and what can be
    saved."""
    torch.manual_seed(seed)
    settings = changed(preset(name), learning_rate=1e-2, hidden=(8,), n=1, target_every=5)
    continuous = settings.algorithm == "sac"
    actions = Bounds(np.full(2, -1, np.float32), np.full(2, 1, np.float32)) if continuous else 3
    algorithm = algorithm_from(settings, VECTOR_STEP, actions, seed)
    optimizer = optimizing.optimizer_from(settings, algorithm)
    rng, begin = np.random.default_rng(seed), 0
    if resume is not None:
        tensors, document = checkpoint.load(resume)
        checkpoint.restore_training(tensors, document, algorithm, optimizer)
        rng.bit_generator.state, begin = document["generator"], document["learner_step"]
    losses = []
    for step in range(begin, begin + steps):
        data = {
            "observation": rng.standard_normal((8, 2, 4)).astype(np.float32),
            "action": rng.uniform(-1, 1, (8, 1, 2)) if continuous else rng.integers(0, 3, (8, 1)),
            "reward": rng.standard_normal((8, 2)).astype(np.float32),
            "terminated": rng.random((8, 2)) < 0.2,
        }
        batch = transitions(data, np.full(8, 2), rng.random(8, np.float32), 0.9)
        found = algorithm.gradients(batch)
        losses.append(optimizing.apply(algorithm, optimizer, found).loss)
        algorithm.follow(step + 1)
    if folder is not None:
        tensors, document = checkpoint.training_tensors(algorithm, optimizer)
        document |= {"learner_step": steps, "generator": rng.bit_generator.state}
        checkpoint.save(folder, f"learner-{steps:09d}", tensors, document)
    return losses


VECTOR_STEP = spec_of(
    Column("observation", "float32", (4,)),
    Column("action", "int64"),
    Column("reward", "float32"),
    Column("terminated", "bool"),
)


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_a_resumed_run_continues_bit_for_bit(tmp_path, name):
    """Given 20 learner steps in one run, and 8 and 12 in two with a checkpoint between them. Expect
    the same losses."""
    whole = trained(3, 20, name=name)
    first = trained(3, 8, folder=tmp_path, name=name)
    rest = trained(99, 12, resume=checkpoint.latest(tmp_path), name=name)
    assert first + rest == whole


def test_the_newest_whole_checkpoint_is_found_and_a_damaged_one_is_not(tmp_path):
    """Given no checkpoint, two, and then the newer one cut short. Expect none, the newer and the
    older, and WeightsError for one that is damaged or missing."""
    assert checkpoint.latest(tmp_path) is None
    trained(1, 2, folder=tmp_path)
    trained(1, 5, folder=tmp_path)
    assert checkpoint.latest(tmp_path).name == "learner-000000005.json"
    torn = tmp_path / "learner-000000005.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])
    assert checkpoint.latest(tmp_path).name == "learner-000000002.json"
    with pytest.raises(WeightsError, match="damaged"):
        checkpoint.load(torn)
    with pytest.raises(WeightsError, match="no checkpoint"):
        checkpoint.load(tmp_path / "nothing.json")


def test_presets_are_the_decided_numbers():
    """Given the presets. Expect the numbers that were decided for CartPole and those of Horgan et
    al., a sentence of help for each setting, and ValueError for a name that is none."""
    cartpole, paper = preset("cartpole"), preset("apex-paper")
    assert (cartpole.hidden, cartpole.learning_rate, cartpole.batch) == ((128, 128), 5e-4, 128)
    assert (cartpole.n, cartpole.gamma, cartpole.clip_norm) == (3, 0.99, 10.0)
    assert (cartpole.alpha, cartpole.beta_start, cartpole.min_size) == (0.6, 0.4, 1000)
    assert (cartpole.target_every, cartpole.envs, cartpole.actors) == (250, 8, 1)
    assert 4 <= cartpole.steps_per_update <= 64 and cartpole.samples_per_insert == 8.0
    assert (paper.actors, paper.batch, paper.capacity, paper.min_size) == (
        360,
        512,
        2_000_000,
        50_000,
    )
    assert (paper.learning_rate, paper.optimizer_epsilon) == (6.25e-5, 1.5e-7)
    assert (paper.rmsprop_decay, paper.clip_norm, paper.target_every) == (0.95, 40.0, 2500)
    assert (paper.push_batch, paper.prefetch, paper.samples_per_insert) == (50, 16, None)
    for each in PRESETS.values():
        for field in dataclasses.fields(each):
            assert field.metadata["help"].endswith("."), field.name
        json.dumps(dataclasses.asdict(each))
    optimizer = optimizing.optimizer_from(paper, network_from("mlp", VECTOR, 2))
    assert isinstance(optimizer, torch.optim.RMSprop) and optimizer.defaults["centered"]
    with pytest.raises(ValueError, match="no preset"):
        preset("pong")
    with pytest.raises(ValueError, match="no setting 'lr'"):
        changed(cartpole, lr=1)
