"""What the paper says, and how the runs compare with it."""
