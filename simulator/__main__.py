"""`python -m simulator` is `stallfree`."""

from simulator.cli import main

main()
