"""``python -m argosy``: what torchrun and srun start."""

from argosy.cli.main import main

if __name__ == "__main__":
    main()
