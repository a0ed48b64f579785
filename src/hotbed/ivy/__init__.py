"""Ivy, the HTTP gateway. Does not know there is a GPU and never imports torch."""
