"""Measurements that are no tests: what they print depends on the machine."""
