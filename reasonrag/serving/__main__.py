"""`python -m reasonrag.serving FOLDER`: see `server`."""

import sys

from reasonrag.serving.server import main

sys.exit(main())
