"""`python -m reasonrag` is the command line."""

from reasonrag.cli import main

if __name__ == "__main__":
    main()
