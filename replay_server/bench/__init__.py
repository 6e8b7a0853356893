"""How fast it is here: `replay-server bench`, and the same work over every transport."""
