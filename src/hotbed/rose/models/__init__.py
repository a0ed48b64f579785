"""One readable page a model family, written over hotbed.rose.layers."""
