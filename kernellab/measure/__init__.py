"""What is launched and timed, and whether its outputs are right: the same for all who tune, benchmark and compare."""
