"""``python -m headwise``: the same door as the ``headwise`` command."""

from headwise.cli.main import main

if __name__ == "__main__":
    main()
