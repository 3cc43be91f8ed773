"""Computations that the holder of a block of columns does by itself: densities, statistics, M-steps."""
