"""Tools of the project: notebooks in their committed form, releases, what students download. Run by make."""
