"""The interfaces of a kind of task: objective, evaluation, answers, promotion rules. Kinds are in kinds."""
