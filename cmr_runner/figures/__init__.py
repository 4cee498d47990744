"""Pictures of runs: the only room that knows matplotlib."""
