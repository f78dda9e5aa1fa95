"""Where the time of a launch goes on a GPU: samples of the program counter, and the hardware's counters."""
