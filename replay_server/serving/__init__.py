"""What `replay-server serve` adds to a Server: server.toml, shards, ZeroMQ's keys."""
