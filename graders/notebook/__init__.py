"""Reading and repairing notebooks with the standard library alone: students get this folder as one file."""
