"""Transports of messages between agents."""
