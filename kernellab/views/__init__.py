"""From results to SVG, HTML, figures and text."""
