"""A fitted mixture as one value, and what follows from it alone."""
