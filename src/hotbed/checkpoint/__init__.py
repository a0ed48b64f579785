"""A model folder, read into frozen records. No torch, no pickle, no code from the folder is run."""
