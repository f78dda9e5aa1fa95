"""The magics, one module per family: parse, call the lab, return."""
