"""`python -m mainstay`: the same as the `mainstay` command."""

from .cli import main

if __name__ == "__main__":
    main()
