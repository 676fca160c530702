"""What the measure is made of, for those who time or examine it."""

from robustbook.agreement._adam import adam_steps
from robustbook.agreement._kernel import Kernel

__all__ = ["Kernel", "adam_steps"]
