"""`reasonrag`, also `python -m reasonrag`: the command line, once the `mcts` that Python finds is known to be ours."""

import sys
from importlib.util import find_spec
from pathlib import Path

OURS = Path(__file__).parents[1] / "mcts" / "__init__.py"


def main() -> None:
    """Run the command line; say in one line if another `mcts` stands before ours, as nothing can be imported then."""
    found = find_spec("mcts")
    if found is None or found.origin != str(OURS):
        where = found.origin if found else "nowhere"
        message = f"error: Python imports another mcts ({where}), not the one of reasonrag ({OURS.parent})"
        sys.stderr.write(f"{message}. Remove that one (pip uninstall mcts), or install reasonrag elsewhere\n")
        sys.exit(2)
    from reasonrag.cli import main as run

    run()


if __name__ == "__main__":
    main()
