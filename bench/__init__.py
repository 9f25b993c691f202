"""Benchmarks, not tests: what they print depends on the machine."""
