"""Studies on real networks: one party, one machine, one command."""
