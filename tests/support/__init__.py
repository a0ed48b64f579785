"""What tests of several rooms share: tiny checkpoints on disk. Needs no torch."""
