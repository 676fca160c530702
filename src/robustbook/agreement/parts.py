"""What the papers' procedure is made of, for those who time it."""

from robustbook.agreement._adam import adam_steps

__all__ = ["adam_steps"]
