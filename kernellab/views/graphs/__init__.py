"""Pictures of boxes and arrows: from an IR graph to a diagram, a layout and SVG."""
