"""Ways for agents to reach each other."""
