"""A small program of llama.cpp's: of ggml only, a minute or two of compiling."""

from pathlib import Path

import yaml

from labctl.shipped import TOOLCHAINS

PRODUCT = "ggml-tool"
TOOL = "llama-gguf"


def ggml_lab(root: Path) -> Path:
    """The root of a lab in which it is a product, made with the definitions of llama.cpp."""
    spec = yaml.safe_load((TOOLCHAINS / "products" / "llama.cpp.yaml").read_text())
    source = spec["versions"]["classic"]["source"]
    spec |= {
        "product": PRODUCT,
        "description": "Writes and reads GGUF files",
        "default_version": "classic",
        "versions": {"classic": {"source": source}},
        # Without arguments it prints its usage.
        "tools": {TOOL: {"smoke": [], "smoke_status": 255}},
    }
    spec["definitions"]["LLAMA_BUILD_EXAMPLES"] = True
    path = root / "toolchains" / "rk3568" / f"{PRODUCT}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(spec))
    (root / "devices.yaml").write_text("boards: {}\n")
    return root
