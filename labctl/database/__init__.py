"""SQL databases of labctl: a SQLite file, or a PostgreSQL shared by a lab."""
