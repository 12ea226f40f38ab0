"""Figures made from records: charts in Vega-Lite with their data, as files or in a page."""
