"""The sliders of a launch as a widget, as HTML and as text."""
