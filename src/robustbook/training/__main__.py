"""Train the project's checkpoints: ``python -m robustbook.training NAME``."""

from robustbook.training._recipes import main

if __name__ == "__main__":
    main()
