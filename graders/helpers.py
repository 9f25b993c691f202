"""Functions that a case may name as an argument (`graders.records.Helper`). They run beside the student's code.

No answer may stand here: a submission can read this module.
"""

from collections import Counter

TALLY: Counter[str] = Counter()  # what the helpers count while an operation runs; a record takes it over
