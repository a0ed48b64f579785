"""Ragged attention backends behind one contract."""
