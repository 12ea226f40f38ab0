"""Figures, each declared once: the measurement, and where it is shown, judged and stored."""
