"""How rates change as tables, sessions, batches, items and servers grow, and a model of them."""
