"""What doctor makes of names: an interface's are any bytes, and a folder's owner is not all."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hosts import Tree

from replay_server.observe.doctor import examine, shell_word
from replay_server.observe.interfaces import lost_with


def test_an_interface_may_be_called_anything(tmp_path):
    """Given an interface whose name is no text. Expect a report with the name's bytes told."""
    tree = Tree(tmp_path)
    name = os.fsdecode(b"e\xff\x1b\x1d\xe2\x80\xa8")
    tree.nic(interface=name)
    tree.default_route(name)
    command = (sys.executable, "-m", "replay_server", "doctor", "--root", tmp_path)
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    shown = r"e\udcff\x1b\x1d\u2028"
    assert done.returncode == 0 and shown in done.stdout, done.stderr
    assert list(lost_with(tmp_path, name)) == [f"{name} carries the default route"]
    closed = [*map(str, command)]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *closed], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o1777])
def test_a_folder_that_others_write_to_is_none_for_a_socket(tmp_path, mode):
    """Given /run/replay-server as a user's own, its group's, and everybody's. Expect the advice to
    name the first."""
    tree = Tree(tmp_path)
    folder = tmp_path / "run/replay-server"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    os.chown(folder, 1000, 1000)
    said = examine(tmp_path, tmp_path, uid=1000).host.socket_folder
    assert said == ("/run/replay-server" if mode == 0o755 else "")
    assert tree.root == tmp_path


@pytest.mark.parametrize("name", [b"eth0", b"a b", b"x'y", b"e\xff0", b"q\x1b\\'", b"-x*$(y)"])
def test_a_name_in_an_advised_command_is_one_word(name):
    """Given names as the kernel takes them. Expect a shell to read the word as that name."""
    word = os.fsencode(f"printf %s {shell_word(os.fsdecode(name))}")
    assert subprocess.run(["bash", "-c", word], capture_output=True, check=True).stdout == name
