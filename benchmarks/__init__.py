"""Benchmarks that a wheel does not carry: the paper's claims, and peers beside this package."""
