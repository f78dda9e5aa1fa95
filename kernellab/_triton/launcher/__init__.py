"""The launch path of bound kernels."""
