"""A block of columns, and all that its holder computes by itself: densities, statistics, M-steps."""
