"""The source of a kernel beside its stages."""
