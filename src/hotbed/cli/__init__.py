"""The `hotbed` command. Options come from the settings records.

Heavy imports wait for the command.
"""

# Importing the modules makes their commands join the app.
from hotbed.cli import bench, doctor, files, in_process, services  # noqa: F401
from hotbed.cli.application import app, main

__all__ = ["app", "main"]
