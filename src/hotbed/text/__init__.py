"""Tokenising, templates, truncation and splitting: pure functions over token arrays. No torch."""
