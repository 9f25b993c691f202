"""``python -m graders``."""

import sys

from graders.cli import main

if __name__ == "__main__":
    sys.exit(main())
