"""The device side of adb: adbd's replies, for virtual phones."""
