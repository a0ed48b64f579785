"""Tulip, the gRPC server: batching by token count, clients in turn."""
