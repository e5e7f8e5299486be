"""What a kind of task must give: objective, cases, answers, rules. The kinds themselves are in kinds."""
