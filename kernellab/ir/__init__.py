"""What Triton's IR says about a kernel: its graph, its effects, its locations."""
