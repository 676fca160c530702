"""``python -m press``."""

from press.commands import app, run_app

if __name__ == "__main__":
    run_app(app, name="python -m press")
