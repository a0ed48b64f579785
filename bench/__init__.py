"""Measurements. Each suite checks that the answers are right before it times anything."""
