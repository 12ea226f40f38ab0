"""Names of a tool's options, read from its help and kept in the manifest."""

import pytest

from labctl.build.builder import build
from labctl.build.smoke import option_names, starter
from labctl.config.target import load_target

#: Pieces of the helps of llama-completion (new), llama-cli (classic) and llama-bench.
HELP = """\
usage: llama-bench [options] -x
-h,    --help, --usage                  print usage and exit
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
--poll <0...100>                        use polling level, see --nothing
                                        - none: no special loading mode
                                        --nor-this
  -ot --override-tensor <tensor name pattern>=<buffer type>;...
  -fa, --flash-attn <on|off|auto>       (default: auto)
"""


def test_options_are_read_from_a_help() -> None:
    assert set(option_names(HELP)) == {
        "-h", "--help", "--usage", "-kvo", "--kv-offload", "-nkvo", "--no-kv-offload", "--poll",
        "-ot", "--override-tensor", "-fa", "--flash-attn",
    }  # fmt: skip


def test_the_manifest_keeps_them_and_a_new_rule_asks_again(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    assert build(tiny_lab.request("one")).manifest.tools["one"].options is None
    tiny_lab.change_spec("one: {", "one: {help: [--help], ")
    (tiny_lab.source / "one.c").write_text(
        '#include <stdio.h>\nint main(void) { return puts("-a, --all  x\\n-b N") < 0; }\n'
    )
    found = build(tiny_lab.request("one")).manifest.tools["one"].options
    if isinstance(starter(load_target("rk3568", tiny_lab.root)), str):
        pytest.skip("programs for the target cannot be started here")
    assert found == ("--all", "-a", "-b")
