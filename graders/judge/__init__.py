"""What is asked of a student's function, and how its answers are judged. No process, no file of a course."""
