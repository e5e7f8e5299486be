"""The colours of charts on white paper."""

from __future__ import annotations

# The page's roles on white paper.
ON_PAPER = {
    "ink": "#1b1f23",
    "muted": "#626a73",
    "rule": "#dde1e5",
    "accent": "#1f5fa8",
    "second": "#c05a17",
    "paper": "#ffffff",
}
