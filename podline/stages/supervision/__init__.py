"""Runs stages in child processes: starts, watches and ends them, and explains their deaths."""
