"""A series of launches and torch operations as a program: recorded while it runs, run again, planned and exported."""
