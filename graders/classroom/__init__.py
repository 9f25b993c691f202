"""Course folders, submissions, the gradebook, feedback: the one place that knows nbgrader."""
