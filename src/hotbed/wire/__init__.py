"""The protocol between Ivy and Tulip: proto, generated code, codec, error table, limits.

Usable by itself as a client library: it needs numpy, protobuf and grpc, nothing else of Hotbed
but `hotbed.core`.
"""
