"""One hypothesis profile for every test: the same examples on every machine and run, and no clock."""

from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=40, database=None)
settings.load_profile("fixed")
