"""adb: the server's and the device's protocols, without a library of Android."""
