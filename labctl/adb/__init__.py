"""adb: the server's and the device's protocols, without a library of Android."""

from typing import Final

#: Default address of this host's adb server.
ADB_SERVER: Final = "127.0.0.1:5037"
