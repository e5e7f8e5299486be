"""What everything may use: errors, figures as text, progress, entry points, drawings. Knows no stage, data or model."""
