"""``python -m press``."""

from press.commands import app

if __name__ == "__main__":
    app(prog_name="python -m press")
