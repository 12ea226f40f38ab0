"""A client of an adb server: its devices, and the services of one device."""
