"""ROSE, the engine: one call, step(). Does not know there is a network."""
