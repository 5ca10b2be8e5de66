"""Subcommands of ``graft-sglang``; each module has ``add_arguments`` and ``run``."""
