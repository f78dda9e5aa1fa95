"""A judge of kernels: a candidate against a specification, without its Python beside the verdict or the clock."""
