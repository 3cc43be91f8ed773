"""Who takes part, who is linked, how the network adds, and what it sends."""
