"""The APIs that clients are written for, one file each, over the one internal request."""
