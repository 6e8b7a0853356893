"""Replay buffers of other libraries with a replay server behind them; each needs its library."""
