"""The currency every room shares: ragged batches, output specs, model facts, errors.

Imports nothing of Hotbed and nothing heavier than numpy, so any room may stand on it.
"""
