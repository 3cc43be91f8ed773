"""Sums that reveal only the sum, and rows that are matched without showing ids."""
