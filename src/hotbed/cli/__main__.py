"""`python -m hotbed.cli`."""

from hotbed.cli import main

main()
