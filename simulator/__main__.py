"""`python -m simulator` is `stallfree`."""

import sys

from simulator.cli import main

if __name__ == "__main__":
    sys.exit(main())
