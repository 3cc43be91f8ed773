"""A whole network in one process, as linear algebra.

Every root keeps its own estimates, exactly as on a network, but nothing is sent: the rows stream through in
chunks that fit the cache, and what a network would have sent is counted.
"""
