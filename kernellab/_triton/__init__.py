"""The only importer of Triton's internals, and the only place that knows its versions."""
