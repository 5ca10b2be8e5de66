"""Replays, tables and plots of recorded rounds and served prompts."""
