"""One machine: starts and watches Ivy workers and Tulip replicas."""
