"""``python -m gpytorch_nkn.cli`` is ``gpytorch-nkn``."""

import sys

from gpytorch_nkn.cli import main

if __name__ == "__main__":
    sys.exit(main())
