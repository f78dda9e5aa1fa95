"""What an output is to hold, how far a right kernel may be from it, and whether it is: the same for all who compare."""
