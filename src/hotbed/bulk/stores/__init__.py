"""Vector stores that `hotbed push` copies rows into, each through its own client."""
