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


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_read(battery: str, supply: str, power: str) -> None:
    phone_state({"battery": battery + BATTERY[:90], "supply": supply, "power": power})
    phone_facts(properties_in(battery + "\n" + PROPERTIES + supply))
