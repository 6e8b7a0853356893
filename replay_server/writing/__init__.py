"""How steps become rows and items: resets, ends, windows, what waits for the core."""
