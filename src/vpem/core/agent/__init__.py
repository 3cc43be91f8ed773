"""One party as a state machine: events in, messages out."""
