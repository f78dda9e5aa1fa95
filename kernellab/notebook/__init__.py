"""All that needs IPython: magics, running a cell, formatters, live display."""
