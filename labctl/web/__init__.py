"""The dashboard: pages and a JSON API on what a lab's records and state say."""
