"""Replay buffers of other projects beside this one, in one run: `make bench-peers`.

One file per peer: `serve(setting)` in a process of the server's, `connect(setting, address)` in
each client's (peer.py). worker.py is such a process; it needs NumPy and the peer, so each runs in a
virtual environment of its own (environments.py). run.py is the command.
"""
