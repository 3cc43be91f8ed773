"""Parties and links of a network, its summations, and their traffic."""
