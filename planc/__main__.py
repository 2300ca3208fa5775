"""`python -m planc`."""

from planc.cli.main import main

if __name__ == "__main__":
    main()
