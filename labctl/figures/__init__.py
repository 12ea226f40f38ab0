"""Figures, each declared once: what is measured, and where it is shown, judged and kept."""
