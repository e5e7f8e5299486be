"""The interfaces that a kind of task implements: objective, evaluation, answers, promotion rules."""
