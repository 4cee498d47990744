"""The HTML report on many runs."""
