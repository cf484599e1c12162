"""The base class of all settings, and the bounds of their numbers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Base class of all settings. It is frozen, and unknown keys are an error.

    The `Options` of environments inherit from it too.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    @classmethod
    def advises(cls, key: str) -> str | None:
        """Return what to write instead of an unknown key, if these settings know it."""
        return None


Probability = Annotated[float, Field(gt=0.0, le=1.0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
