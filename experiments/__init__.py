"""The paper's experiments, and what it leaves out; each by `python -m experiments.NAME [--quick]`."""
