"""Results as cards: HTML that stands in a saved notebook, and text for a terminal."""
