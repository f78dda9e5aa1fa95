"""What a launch does inside: the values of its lines, and the time of its programs."""
