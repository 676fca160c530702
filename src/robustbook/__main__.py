"""``python -m robustbook``: the command line."""

from robustbook.cli import main

if __name__ == "__main__":
    main()
