"""Learning through the server beside learning from a buffer in the process; see run.py."""
