"""Tuning: search spaces and searches, statistics, the pipeline from configs to a winner, and what it leaves behind."""
