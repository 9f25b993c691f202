"""Functions that a case may name as an argument (`graders.records.Helper`). They run beside the student's code.

No answer may stand here: a submission can read this module.
"""
