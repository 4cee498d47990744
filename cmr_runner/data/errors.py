"""What can go wrong while data is obtained."""


class DataError(Exception):
    """The data of a run cannot be had; the message says what was tried and what the user can do."""


class SourceError(Exception):
    """One source failed; the next one is tried."""
