"""What all agents decide together, as functions of what they know: starts, stops, repairs."""
