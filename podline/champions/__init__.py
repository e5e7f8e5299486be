"""What is in use: promotion, exports, checks of models, serving. What makes a run better is in compare and contract."""
