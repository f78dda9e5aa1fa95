"""Results as files that live without the lab."""
