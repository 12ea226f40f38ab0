"""Texts of getprop and dumpsys, written after AOSP's sources: no real phone printed them."""

from hypothesis import given
from hypothesis import strategies as st

from labctl.board.android import phone_facts, phone_state, properties_in

PROPERTIES = """\
[ro.build.fingerprint]: [maker/p/p:14/UQ1A/1:user/release-keys]
[ro.build.version.release]: [14]
[ro.build.version.sdk]: [34]
[ro.product.model]: [Phone \x1b]0;x]
[ro.soc.manufacturer]: [QTI]
[ro.soc.model]: [SM8550]
"""
BATTERY = """\
Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  status: 2
  level: 82
  scale: 100
  temperature: 295
"""


def test_properties_name_the_phone() -> None:
    found = phone_facts(properties_in(PROPERTIES))
    assert found["os_version"] == "Android 14, maker/p/p:14/UQ1A/1:user/release-keys"
    phone = found["phone"]
    assert (phone.soc, phone.sdk, phone.model) == ("QTI SM8550", 34, "Phone \\x1b]0;x")
    assert phone_facts({}) == {}


def test_battery_and_screen() -> None:
    state = phone_state({"battery": BATTERY, "power": "  mWakefulness=Awake\n"})
    assert state is not None
    assert state.charging is True
    assert state.text == "82%, charging, power: usb, 29.5 °C, screen on"


def test_typed_values_are_not_the_phones_own() -> None:
    typed = BATTERY.replace("state:\n", "state:\n  (UPDATES STOPPED -- use 'reset' to restart)\n")
    assert phone_state({"battery": typed}) is None
    kernel = "POWER_SUPPLY_STATUS=Not charging\nPOWER_SUPPLY_CAPACITY=40\nPOWER_SUPPLY_TEMP=9999\n"
    state = phone_state({"battery": typed, "supply": kernel})
    assert state is not None
    assert (state.text, state.charging) == ("40%, not charging", False)


# Another maker: MediaTek's platform, Android 11 without ro.soc.*, a longer dump, capitals, CRLF.
OTHER = {
    "properties": """\
[ro.board.platform]: [mt6893]\r
[ro.build.version.release]: [11]\r
[ro.build.version.sdk]: [30]\r
[ro.product.manufacturer]: [Other]\r
[ro.product.model]: [M2]\r
[ro.serialno]: [unknown]\r
""",
    "battery": """\
Current Battery Service state:\r
  AC powered: true\r
  USB powered: false\r
  Wireless powered: false\r
  Max charging current: 0\r
  Charge counter: 3520000\r
  status: 5\r
  health: 2\r
  present: true\r
  level: 200\r
  scale: 200\r
  voltage: 4399\r
  temperature: 331\r
  technology: Li-poly\r
  mod level: -1\r
""",
    "power": "  mWakefulness=Dozing\r\nDisplay Power: state=DOZE\r\n",
}


def test_another_maker_is_read_as_well() -> None:
    found = phone_facts(properties_in(OTHER["properties"]))
    assert (found["phone"].text, found["serial"]) == ("Other M2, mt6893, API level 30", None)
    state = phone_state(OTHER)
    assert state is not None
    assert state.text == "100%, full, power: ac, 33.1 °C, screen off"
    assert state.charging is False


def test_odd_values_are_absent() -> None:
    odd = BATTERY.replace("level: 82", "level: 182").replace("temperature: 295", "temperature: 1e9")
    state = phone_state({"battery": odd.replace("status: 2", "status: 1")})
    assert state is not None
    assert state.text == "power: usb"
    assert phone_state({"battery": "Can't find service: battery\n", "power": "\x00" * 9000}) is None
    twice = phone_state({"battery": BATTERY + BATTERY.replace("level: 82", "level: 12")})
    assert twice is not None
    assert twice.level_percent is None  # two batteries, or two answers


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_read(battery: str, supply: str, power: str) -> None:
    state = phone_state({"battery": battery + BATTERY[:90], "supply": supply, "power": power})
    assert state is None or state.level_percent is None or 0 <= state.level_percent <= 100
    assert state is None or state.text.isprintable()
    facts = phone_facts(properties_in(battery + "\n" + PROPERTIES + supply))
    assert facts["phone"] is None or facts["phone"].text.isprintable()
