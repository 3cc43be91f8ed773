"""Simulation of a whole network in one process, as linear algebra.

Every root keeps its own estimates, exactly as on a network, but nothing is sent. The rows are processed in chunks
that fit the cache, and the messages that a network would send are counted.
"""
