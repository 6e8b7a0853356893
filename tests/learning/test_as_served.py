"""What the server's table decides stands in the record of a run, whatever was asked for."""

from __future__ import annotations

from deploy.table import table_for
from replay_server import Client, Server
from replay_server.training import options
from replay_server.training.presets import CARTPOLE, changed

TABLE = changed(CARTPOLE, alpha=0.7, capacity=4096, min_size=64, steps_per_update=8.0)


def served(settings, asked=()):
    """(the settings as a server of TABLE has them, what was said); `asked`: those given."""
    heard: list[str] = []
    with Server([table_for(TABLE)]) as server, Client(server.address) as client:
        args = options.Train(preset="cartpole")
        args.asked = frozenset(asked)
        return options.as_served(settings, args, client.table("main"), heard.append), heard


def test_the_record_has_the_tables_numbers():
    """Given the preset as it is, and one of another batch. Expect the table's numbers, the updates
    by the batch that is drawn, and no word: nobody asked for others."""
    found, heard = served(CARTPOLE)
    assert (found.alpha, found.capacity, found.min_size) == (0.7, 4096, 64)
    assert found.steps_per_update == 8.0 and heard == []
    assert served(changed(CARTPOLE, batch=64))[0].steps_per_update == 4.0


def test_options_in_vain_are_named():
    """Given options that the table has otherwise, and one that it has. Expect one sentence that
    names the first and what there is, and a record of what there is."""
    found, heard = served(changed(CARTPOLE, alpha=0.9, min_size=200, capacity=4096))
    assert (found.alpha, found.min_size) == (0.7, 64)
    assert heard == [
        "--alpha 0.9 --min-size 200: the server's table 'main' decides, and has alpha 0.7, "
        "min_size 64; serve a table with other numbers where you want them"
    ]


def test_what_is_asked_for_as_the_preset_has_it_is_named_too():
    """Given a flag whose value is the preset's own, where the table has another. Expect a
    sentence."""
    _, heard = served(CARTPOLE, ["alpha", "seed"])
    assert heard and heard[0].startswith("--alpha 0.6: the server's table 'main' decides")
    args, _ = options.resolved(options.Train, {"alpha": 0.6, "updates": 5})
    assert args.asked == {"alpha"}
