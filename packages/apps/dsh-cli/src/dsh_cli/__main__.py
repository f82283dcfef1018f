"""`python -m dsh_cli` is `dsh`."""

from dsh_cli.main import main

if __name__ == "__main__":
    main()
