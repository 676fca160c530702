"""What the measure is made of, for those who time or examine it."""

from robustbook.agreement._adam import adam_steps
from robustbook.agreement._kernel import Kernel
from robustbook.agreement._search import maximize
from robustbook.agreement._shards import Shards, shards_of

__all__ = ["Kernel", "Shards", "adam_steps", "maximize", "shards_of"]
