"""What the memory system does for a launch, worked out without a GPU."""
