"""The devices of an adb server and their states, each with its cause and cure."""

import re
from dataclasses import dataclass

from labctl.errors import LinkError, LinkRefused, NotAuthorised, printable_line

DEVICE = "device"
NO_PERMISSIONS = "no permissions"
#: States that pass by themselves within seconds.
SETTLING = ("connecting", "authorizing", "offline")

#: By state: the kind of error, the cause, the cure.
_STATES: dict[str, tuple[type[LinkError], str, str]] = {
    "offline": (
        LinkRefused,
        "does not answer the adb server",
        "wake its screen, plug it in again, or run `adb reconnect offline`",
    ),
    "unauthorized": (
        NotAuthorised,
        "does not accept the adb server's key",
        (
            "unlock its screen and allow USB debugging for this computer; if no dialog appears,"
            " revoke the authorisations in its developer options, and plug it in again"
        ),
    ),
    "authorizing": (
        NotAuthorised,
        "still checks the adb server's key",
        "wait some seconds; unlock its screen and look for a dialog",
    ),
    "connecting": (
        LinkRefused,
        "has not answered the adb server yet",
        "wait some seconds, or plug it in again",
    ),
    NO_PERMISSIONS: (
        LinkRefused,
        "cannot be opened by the user of the adb server",
        (
            "install udev rules for it (Debian: android-sdk-platform-tools-common), add the user to"
            " the group plugdev, restart the adb server, plug it in again"
        ),
    ),
    "recovery": (
        LinkRefused,
        "runs its recovery system",
        "restart it: `adb reboot`, or by its menu",
    ),
    "sideload": (
        LinkRefused,
        "waits for an update (sideload)",
        "end that on its screen, or restart it: `adb reboot`",
    ),
    "rescue": (
        LinkRefused,
        "is in rescue mode",
        "restart it on its screen, or with `adb reboot`",
    ),
    "bootloader": (
        LinkRefused,
        "is in its boot loader",
        "start its system: `fastboot reboot`, or by its menu",
    ),
    "host": (
        LinkRefused,
        "is another adb host, and no device",
        "check what is on the cable: a phone must be in its peripheral role",
    ),
    "detached": (
        LinkRefused,
        "is detached from the adb server",
        "give it back to this server: `adb attach`",
    ),
}
_NAMES = "|".join([DEVICE, *_STATES])
#: SERIAL, STATE, fields. A serial may have blanks, and the state `no permissions (reason)` too.
_LINE = re.compile(
    rf"(?P<serial>\S.*?)\s+(?P<state>(?:{_NAMES})(?=\s|$)|\S+)"
    r"(?P<reason> \(.*?\)(?:; see \[.*?\])?)?(?P<fields>(?: \w+:\S*)*)"
)
_LONGEST_LINE = 1000


@dataclass(frozen=True)
class Device:
    """A device as a server lists it; ``port`` is its place on the USB, if it has one.

    ``transport_id`` names one connection of a device, until it is plugged in again.
    """

    serial: str
    state: str
    transport_id: int
    port: str | None = None
    model: str | None = None
    #: The server's own words on the state.
    reason: str = ""

    def is_named(self, name: str) -> bool:
        """Return True if ``name`` is its serial, its port ``usb:…`` or its ``transport_id:N``."""
        return name in (self.serial, self.port, f"transport_id:{self.transport_id}")


def read_device(line: str) -> Device | None:
    """Return the device of a line of ``adb devices -l``; None if the line cannot be parsed."""
    match = _LINE.fullmatch(line.strip()) if len(line) <= _LONGEST_LINE else None
    if match is None:
        return None
    words = match["fields"].split()
    fields = dict(word.split(":", 1) for word in words)
    number = fields.get("transport_id", "")
    if not (number.isascii() and number.isdecimal()):
        return None
    return Device(
        match["serial"],
        match["state"],
        int(number),
        f"usb:{fields['usb']}" if fields.get("usb") else None,
        fields.get("model") or None,
        (match["reason"] or "").strip(),
    )


def state_error(device: Device, label: str) -> LinkError:
    """Return the error for a device that is not in the state ``device``."""
    unknown = (LinkRefused, "is not ready", "look at its screen, and at `adb devices -l`")
    kind, cause, cure = _STATES.get(device.state, unknown)
    error = kind(
        f"{label} {cause}: its state is {printable_line(device.state)!r}",
        hint=cure,
        details=printable_line(device.reason) or None,
    )
    return error.of_host() if device.state == NO_PERMISSIONS else error
