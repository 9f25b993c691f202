"""All that runs beside student code: a sandbox has a copy of this folder, so nothing here imports from outside."""
