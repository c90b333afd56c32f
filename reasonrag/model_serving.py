"""`python -m reasonrag.model_serving` is public; the server is `reasonrag.llm.servers.checkpoint`."""

import os
import sys

from reasonrag.llm.servers.checkpoint import main

if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
