# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad`, and `python -m relaxgrad.cli`: the command, or one line that says what to install for it."""

import sys
from importlib.util import find_spec

PACKAGES = ("typer", "rich", "pydantic", "jinja2")  # of the extra `cli`: what torch.compile does without


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        print(f"relaxgrad: the command needs {', '.join(missing)}: pip install 'relaxgrad[cli]'", file=sys.stderr)
        return 2
    from .main import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
