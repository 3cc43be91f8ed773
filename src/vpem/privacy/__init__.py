"""Sums that reveal only the total, and matching of rows without revealing ids."""
