"""Defaults that more than one room states; one place, so that they cannot drift apart."""

from __future__ import annotations

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""Served when no model is named; its weights come with an installed package, so no hub is asked."""
