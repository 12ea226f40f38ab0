"""Switches and health checks in devices.yaml."""

import pytest

from labctl.config.health import HealthChecks
from labctl.config.lab import Lab, lab_model
from labctl.config.switches import CommandAction, HttpAction, Switch
from labctl.config.yaml.document import parse
from labctl.errors import ConfigError
from labctl.transport.built_in import TRANSPORTS

BOARD = """\
boards:
  rk1:
    target: rk3568
    transport: {kind: hdc, link: tcp, address: "10.0.0.1:5555"}
"""


def lab(text: str) -> Lab:
    return parse(text, lab_model(TRANSPORTS), "devices.yaml")


def test_nothing_is_switched_that_is_not_named() -> None:
    switches = lab(BOARD).board().switches
    assert (switches.usb, switches.reboot, switches.power, switches.reflash) == (None,) * 4
    assert not switches.restart_hdc
    assert lab(BOARD).health == HealthChecks()


def test_switches_of_a_board() -> None:
    text = (
        BOARD
        + """\
    switches:
      usb:
        off: {kind: command, command: [uhubctl, -l, "1-1", -p, "2", -a, "off"]}
        on: {kind: command, command: [uhubctl, -l, "1-1", -p, "2", -a, "on"], timeout: 10s}
      power:
        off: {kind: http, address: "http://10.0.0.9/off", method: POST, authorization_env: PDU}
        on: {kind: http, address: "http://10.0.0.9/on", body: '{"on": true}'}
        pause: 10s
      reboot: board
      reflash: {kind: command, command: [./reflash], timeout: 1h}
      wait: 3m
health: {every: 6h, jobs: 20, slower: 8%, recipe: health_check}
"""
    )
    found = lab(text)
    switches = found.board().switches
    assert isinstance(switches.usb, Switch)
    assert isinstance(switches.usb.off, CommandAction)
    assert switches.usb.off.command[-1] == "off"
    assert switches.usb.on.timeout == 10
    assert switches.power is not None
    assert isinstance(switches.power.off, HttpAction)
    assert (switches.power.off.authorization_env, switches.power.pause) == ("PDU", 10)
    assert (switches.reboot, switches.wait) == ("board", 180)
    assert (found.health.every, found.health.slower) == (21600, 0.08)


@pytest.mark.parametrize(
    ("switches", "problem"),
    [
        ("reboot: sometimes", "5:24: boards.rk1.switches.reboot: must be"),
        ("reboot: {kind: command, command: []}", "reboot.command: must have at least 1 entry"),
        ("usb: {off: {kind: command, command: [x]}}", "switches.usb.on: this key is required"),
        ("reflash: {kind: command, command: 'rm -rf /'}", "reflash.command: must be a list"),
        ("reflash: {kind: http, address: 'http://8.8.8.8/x'}", "must be in this network"),
        ("reflash: {kind: http, address: 'http://pdu.lan/x'}", "must be an address such as"),
        ("reflash: {kind: http, address: 'http://me:pw@10.0.0.1/'}", "must be an address such as"),
        (
            "reflash: {kind: http, address: 'http://10.0.0.1/', authorization_env: 'Bearer x'}",
            "has to be the name of an environment variable",
        ),
        (
            "restart_hdc: true",
            "switches.restart_hdc: must be false: only a board with `link: server",
        ),
        ("wait: 3h", "5:22: boards.rk1.switches.wait: must be at most 2h, not '3h'"),
    ],
)
def test_what_cannot_be_switched_is_told_with_its_place(switches: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        lab(f"{BOARD}    switches: {{{switches}}}\n")
    assert problem in refused.value.message
    assert refused.value.message.startswith("devices.yaml:5:")


@pytest.mark.parametrize(
    ("health", "problem"),
    [
        ("every: 60d", "health.every: must be"),
        ("jobs: 0", "health.jobs: must be"),
        ("history: 1", "health.history: must be"),
        ("slower: 200%", "health.slower: must be above 0 and below 100%"),
    ],
)
def test_health_checks_that_cannot_be(health: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        lab(f"{BOARD}health: {{{health}}}\n")
    assert problem in refused.value.message
    assert refused.value.message.startswith("devices.yaml:5:")
