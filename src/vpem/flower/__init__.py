"""Studies on Flower: everything that knows that platform. Only `apps` imports it."""
