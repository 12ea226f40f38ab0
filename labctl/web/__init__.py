"""The dashboard of a lab: pages, a JSON API and metrics over http."""
