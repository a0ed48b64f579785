"""Offline work in process: the Embedder, later index rebuilds."""
