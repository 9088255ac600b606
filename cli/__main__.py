"""`python -m relaxgrad.cli` is the `relaxgrad` command."""

import sys

from .main import main

sys.exit(main())
