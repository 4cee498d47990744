"""Training: the loop, its metrics, its checkpoint. No Hydra, no files."""
