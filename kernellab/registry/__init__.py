"""The side table of kernels, and the verbs over what is kept: list, load, tag, remove, remember."""
