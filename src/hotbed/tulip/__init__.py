"""Tulip, the gRPC server: first come, first served batching by token count."""
