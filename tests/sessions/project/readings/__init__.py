"""Summaries of what sensors report."""
