"""Many runs: reading them, which belong together, and what they amount to."""
