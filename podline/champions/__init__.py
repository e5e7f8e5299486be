"""Promotion of champions, exports, checks of models, serving. compare and contract judge which run is better."""
