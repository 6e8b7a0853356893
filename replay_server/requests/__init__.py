"""What a client asks of its server: tables, draws, priorities, weights."""
