"""Layers over packed tokens; no padding anywhere."""
