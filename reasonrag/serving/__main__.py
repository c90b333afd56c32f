"""`python -m reasonrag.serving FOLDER`: see `server`."""

import os
import sys

from reasonrag.serving.server import main

if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
