"""Texts of a virtual phone: ``getprop`` and ``dumpsys``, from files in its folder.

``.labctl-android`` in the phone's folder has ``properties`` and one text for each service of
``dumpsys``. A file that is there stays: change it, and the phone says something else.
"""

import shlex
from pathlib import Path

from labctl.files import write_atomic
from labctl.virtual.control import NAME

_FOLDER = Path(".labctl-android")

_PROPERTIES = """ro.boot.hardware=virtual
ro.board.platform=virtual
ro.build.type=user
ro.build.version.release=14
ro.build.version.sdk=34
ro.hardware=virtual
ro.product.cpu.abi=arm64-v8a
ro.product.device=virtual
ro.product.manufacturer=labctl
ro.product.model=Virtual
ro.product.name=virtual
ro.serialno={serial}
sys.boot_completed=1
"""
#: In the order of Android 14's BatteryService, PowerManagerService and DisplayManagerService.
_SERVICES = {
    "battery": """Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  Dock powered: false
  Max charging current: 500000
  Max charging voltage: 5000000
  Charge counter: 3010000
  status: 2
  health: 2
  present: true
  level: 78
  scale: 100
  voltage: 4123
  temperature: 291
  technology: Li-ion
""",
    "power": """POWER MANAGER (dumpsys power)

Power Manager State:
  mWakefulness=Awake
  mIsPowered=true
  mPlugType=2
  mBatteryLevel=78
  mStayOn=false

Display Power: state=ON
""",
    "display": """DISPLAY MANAGER (dumpsys display)
  mGlobalDisplayState=ON

Display Power Controller:
  mScreenState=ON
  mScreenBrightness=0.4
""",
}
_GETPROP = """#!/bin/sh
while IFS='=' read -r name value; do
    if [ $# = 0 ]; then echo "[$name]: [$value]"
    elif [ "$name" = "$1" ]; then echo "$value"; exit
    fi
done <{folder}/properties
[ $# = 0 ] || echo "$2"
"""
_DUMPSYS = """#!/bin/sh
cd {folder}/dumpsys || exit
case $1 in
""|-l) echo "Currently running services:"; for name in *; do echo "  $name"; done;;
*/*|.*) echo "Can't find service: $1" >&2;;
*) if [ -f "$1" ]; then cat "$1"; else echo "Can't find service: $1" >&2; fi;;
esac
"""
#: A host sends its package first, and reads the answer then.
_CMD = """#!/bin/sh
case $1 in
package)
    while [ $# -gt 1 ]; do [ "$1" != -S ] || head -c "$2" >/dev/null; shift; done
    echo "Failure [INSTALL_FAILED_USER_RESTRICTED: this phone installs nothing]"; exit 1;;
*) echo "cmd: Can't find service: $1" >&2; exit 20;;
esac
"""
#: toybox's own would restart this computer.
_REBOOT = """#!/bin/sh
case ${0##*/}$1 in
*-p|halt*|poweroff*) how=shutdown;;
*recovery|*bootloader) how=$1;;
*) how=;;
esac
cd {folder}/.. || exit
echo "{\\"do\\": \\"restart\\", \\"how\\": \\"$how\\"}" | nc -U {control} >/dev/null
"""


def show_android(directory: Path, programs: Path, serial: str) -> None:
    """Give a phone's shell its programs, and the texts that they print. Raises HostError."""
    folder = directory / _FOLDER
    texts = {f"dumpsys/{name}": text for name, text in _SERVICES.items()}
    texts["properties"] = _PROPERTIES.format(serial=serial)
    (folder / "dumpsys").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if not (folder / name).exists():
            write_atomic(folder / name, text)
    quoted = shlex.quote(str(folder))
    scripts = {"getprop": _GETPROP, "dumpsys": _DUMPSYS, "cmd": _CMD}
    scripts |= dict.fromkeys(("reboot", "halt", "poweroff"), _REBOOT.replace("{control}", NAME))
    for name, script in scripts.items():
        (programs / name).unlink(missing_ok=True)
        write_atomic(programs / name, script.replace("{folder}", quoted), mode=0o755)
