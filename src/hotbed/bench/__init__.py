"""`hotbed bench`: four suites, side by side with other systems, right before fast."""
