"""`hotbed doctor`: what this machine can do, each claim proved by a run, and what is missing."""
