"""``python -m examples.flights``: see demo.py."""

import sys

from examples.flights.demo import main

sys.exit(main())
