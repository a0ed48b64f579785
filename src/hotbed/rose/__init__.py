"""ROSE, the engine: one call, step(). Does not know there is a network."""

import os

# libgomp reads this once, when torch loads it. Between two layers its threads spin for a few
# microseconds, then sleep. Measured 2026-11-30 (2 cores, MiniLM, one text of 16 tokens, ms):
# never spin 7.3, OMP_WAIT_POLICY=PASSIVE 6.2, 10,000 turns 3.7, 100,000 turns 3.9; batches are as
# fast or faster, and threads that spin for ever stall everything else on a small machine.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# torch's CPU allocator then asks for huge pages: a short text streams all weights once, and 4 KiB
# pages cost it some 8 % (2026-11-30).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
