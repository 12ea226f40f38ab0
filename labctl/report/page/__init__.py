"""The report as a page: one HTML file, Markdown, PDF."""
