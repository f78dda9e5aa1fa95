"""A launch from its arguments to its result: grid, argument specs, shared memory, recording."""
