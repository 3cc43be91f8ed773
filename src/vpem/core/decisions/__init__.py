"""Decisions that all agents make together, as functions of shared data: starts, stops, repairs."""
