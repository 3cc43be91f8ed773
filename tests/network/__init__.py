"""Tests of real processes; a package, as benchmarks/network.py has the same name."""
