"""Stages in child processes: started, watched, ended; what they died of."""
