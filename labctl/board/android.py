"""Facts of an Android phone: its properties, battery and screen.

``getprop`` and ``dumpsys`` print text for people, which differs between versions and makers: a
value of an unexpected form is left out. Formats: ``BatteryService.dump`` and
``PowerManagerService.dump`` of AOSP, ``power_supply`` of the kernel
(Documentation/ABI/testing/sysfs-class-power).
"""

import re
from collections.abc import Mapping
from typing import Any

from labctl.errors import printable
from labctl.records.board import PhoneFacts, PhoneState
from labctl.virtual.marks import KERNEL_ROOT

_PROPERTIES = (
    "ro.product.manufacturer",
    "ro.product.model",
    "ro.soc.manufacturer",
    "ro.soc.model",
    "ro.board.platform",
    "ro.build.version.release",
    "ro.build.version.sdk",
    "ro.build.fingerprint",
    "ro.serialno",
)
_LONGEST = 256
#: Most bytes of an answer that count: a line each is needed.
_BYTES = 8192

#: Sections ``battery``, ``supply`` and ``power``; nothing on boards without Android.
STATE_SCRIPT = f"""\
if command -v getprop >/dev/null 2>&1; then
  bounded=; command -v timeout >/dev/null 2>&1 && bounded='timeout 5'
  section battery; $bounded dumpsys battery 2>/dev/null </dev/null | head -c {_BYTES}
  section supply; cat {KERNEL_ROOT}/sys/class/power_supply/battery/uevent 2>/dev/null
  section power; $bounded dumpsys power 2>/dev/null </dev/null |
    grep -E '^ *mWakefulness=|^ *Display Power: state=' | head -c {_BYTES}
fi
"""
#: The same, after the section ``properties``.
SCRIPT = f"""\
if command -v getprop >/dev/null 2>&1; then
  section properties; getprop 2>/dev/null </dev/null |
    grep -E '^.({"|".join(_PROPERTIES).replace(".", "[.]")}).: ' | head -c {_BYTES}
fi
{STATE_SCRIPT}"""

#: BatteryManager.BATTERY_STATUS_*; 1 is "unknown".
_STATUS = {"2": "charging", "3": "discharging", "4": "not charging", "5": "full"}
_SOURCES = ("ac", "usb", "wireless", "dock")
#: Degrees Celsius that a battery survives.
_COLDEST, _HOTTEST = -40.0, 120.0


def properties_in(text: str) -> dict[str, str]:
    """Return the properties in an output of ``getprop``, each without control characters."""
    lines = re.findall(r"(?m)^\[([a-z0-9._]+)\]: \[(.*)\]\r?$", text)
    return {
        name: printable(value.strip())[:_LONGEST]
        for name, value in lines
        if name in _PROPERTIES and value.strip() not in ("", "unknown")
    }


def phone_facts(found: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of BoardFacts that properties give; empty without properties."""
    if not found:
        return {}
    maker, chip = found.get("ro.soc.manufacturer"), found.get("ro.soc.model")
    sdk = found.get("ro.build.version.sdk", "")
    release, build = found.get("ro.build.version.release"), found.get("ro.build.fingerprint")
    return {
        "os_version": ", ".join(filter(None, (release and f"Android {release}", build))) or None,
        "serial": found.get("ro.serialno"),
        "phone": PhoneFacts(
            manufacturer=found.get("ro.product.manufacturer"),
            model=found.get("ro.product.model"),
            # Before Android 12 only the name of the platform is known.
            soc=" ".join(filter(None, (maker, chip))) or found.get("ro.board.platform"),
            sdk=int(sdk) if re.fullmatch("[0-9]{1,4}", sdk) else None,
        ),
    }


def phone_state(answers: Mapping[str, str]) -> PhoneState | None:
    """Return battery and screen from the sections of STATE_SCRIPT; None if nothing is known."""
    battery = answers.get("battery", "")[:_BYTES]
    power = answers.get("power", "")[:_BYTES]
    # After `dumpsys battery set` the service reports what somebody typed.
    found = {} if "UPDATES STOPPED" in battery else _of_service(battery)
    for name, value in _of_kernel(answers.get("supply", "")[:_BYTES]).items():
        found.setdefault(name, value)
    awake = _value(power, r"mWakefulness=(\w+)")
    display = _value(power, r"Display Power: state=(\w+)")
    if awake or display:
        # A display that dozes shows a clock.
        is_on = display in ("ON", "VR") if display else awake in ("Awake", "Dreaming")
        found["screen"] = "on" if is_on else "off"
    return PhoneState(**found) if found else None


def _of_service(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    level, scale = _number(text, "level"), _number(text, "scale")
    if level is not None and scale and 0 <= level <= scale:
        found["level_percent"] = round(100 * level / scale)
    _add_heat(found, _number(text, "temperature"))
    if status := _STATUS.get(_value(text, r"status: (\d+)") or ""):
        found["status"] = status
    powered = {source: _value(text, rf"(?i:{source}) powered: (true|false)") for source in _SOURCES}
    sources = [source for source, word in powered.items() if word == "true"]
    if sources:
        found["power_source"] = sources[0]
    elif powered["ac"] == powered["usb"] == "false":
        found["power_source"] = "battery"
    return found


def _of_kernel(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    level = _value(text, r"POWER_SUPPLY_CAPACITY=(\d{1,3})")
    if level is not None and int(level) <= 100:
        found["level_percent"] = int(level)
    heat = _value(text, r"POWER_SUPPLY_TEMP=(-?\d{1,5})")
    _add_heat(found, None if heat is None else int(heat))
    status = (_value(text, r"POWER_SUPPLY_STATUS=([A-Za-z ]+)") or "").lower().strip()
    if status in _STATUS.values():
        found["status"] = status
    return found


def _add_heat(found: dict[str, Any], tenths: int | None) -> None:
    if tenths is not None and _COLDEST <= tenths / 10 <= _HOTTEST:
        found["temperature_mc"] = tenths * 100


def _number(text: str, name: str) -> int | None:
    value = _value(text, rf"{name}: (-?\d{{1,9}})")
    return None if value is None else int(value)


def _value(text: str, pattern: str) -> str | None:
    """Return the group of the only line of a pattern; None if it is missing or ambiguous."""
    found = set(re.findall(rf"(?m)^[ \t]*{pattern}[ \t]*\r?$", text, re.ASCII))
    return found.pop() if len(found) == 1 else None
