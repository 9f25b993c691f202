"""The codes of all problems: the one table of them. A number and its name stay; texts may change."""

from enum import Enum


class Code(Enum):
    """What kind of problem it is, as a number and a meaning; ``str`` gives number and name: ``E202 not-json``.

    1xx are about the file, 2xx about its form, 3xx about the set's cells, 4xx about the folder and the submission, 5xx
    about what happened while it ran. Of the form, 201 to 220 are refused, and 221 and up are repaired.
    """

    SYMBOLIC_LINK = "E101", "a symbolic link instead of a file"
    HARD_LINK = "E102", "a file that has another name elsewhere"
    FOLDER = "E103", "a folder instead of a file"
    NAMED_PIPE = "E104", "a named pipe instead of a file"
    SOCKET = "E105", "a socket instead of a file"
    DEVICE = "E106", "a device instead of a file"
    UNREADABLE = "E107", "the system does not allow the file to be read"
    TOO_LARGE = "E108", "a file larger than the limit"
    WRONG_NAME = "E109", "not called what the set's notebook is called"
    UNKNOWN_NAME = "E110", "not the name of any set's notebook"

    NOT_TEXT = "E201", "not text in UTF-8"
    NOT_JSON = "E202", "not JSON"
    MERGE_MARKS = "E203", "not JSON: marks of an unresolved merge"
    TOO_DEEP = "E204", "lists and objects nested too deeply"
    HUGE_NUMBER = "E205", "a number with thousands of digits"
    NOT_A_NOTEBOOK = "E206", "JSON, but not a notebook"
    UNKNOWN_FORMAT = "E207", "an unknown version of nbformat"
    OLD_FORMAT = "E208", "a version of nbformat before 4 where the library nbformat is not installed"
    EMPTY = "E209", "no cells, or nothing in any of them"
    TOO_MANY_CELLS = "E210", "more cells than the limit"
    FOREIGN_KERNEL = "E211", "a notebook of an R or Julia kernel"
    MERGE_IN_CELL = "E212", "marks of an unresolved merge in a code cell"
    BYTE_ORDER_MARK = "E221", "a byte-order mark before the text"
    WINDOWS_LINES = "E222", "Windows line endings"
    HALF_CHARACTERS = "E223", "incomplete characters"
    OLDER_FORMAT = "E224", "a version of nbformat before 4.5"
    MALFORMED_CELLS = "E225", "cells that do not follow nbformat"
    MALFORMED_IDS = "E226", "ids of cells missing, malformed or not unique"
    MALFORMED_METADATA = "E227", "metadata of the notebook that do not follow nbformat"
    OTHER_KERNEL = "E228", "no kernel, or one other than python3"
    OTHER_LANGUAGE = "E229", "a language other than Python, R or Julia"
    EXTRA_KEYS = "E230", "entries that a notebook does not have"

    ANOTHER_SET = "E301", "cells of another set and none of this one"
    CELL_DELETED = "E302", "a test cell or another locked cell deleted"
    ALL_UNMARKED = "E303", "none of the set's cells marked as such"
    CELL_TWICE = "E304", "a cell of the set more than once"
    UNKNOWN_CELL = "E305", "a cell that claims to be the set's and is not"
    CELL_TYPE = "E306", "a cell of the set turned into another type"
    CELL_METADATA = "E307", "metadata of a cell of the set changed"
    CELL_TAGS = "E308", "tags on a cell of the set"
    CELL_TEXT = "E309", "the text of a locked cell changed"
    ANSWER_DELETED = "E321", "an answer cell deleted"
    ANSWER_UNWRITTEN = "E322", "an answer cell as it was given out"
    ANSWER_NOT_PYTHON = "E323", "an answer cell that is not Python"
    ANSWER_RENAMED = "E324", "no cell defines the name of the answer"
    ANSWER_STILL_RAISES = "E325", "an answer cell that still raises NotImplementedError"

    LINKED_FOLDER = "E401", "a symbolic link instead of the student's or the set's folder"
    NOT_A_FOLDER = "E402", "a file instead of the student's or the set's folder"
    UNREADABLE_FOLDER = "E403", "the system does not allow the folder to be read"
    TOO_MANY_FILES = "E404", "more files than the limit"
    NOTEBOOK_MISSING = "E405", "the notebook missing"
    NOTEBOOK_MISNAMED = "E406", "the notebook missing, but files under other names that may be it"
    MALFORMED_TIME = "E407", "a timestamp.txt without a time in it"
    NO_TIME = "E408", "timestamp.txt missing or empty"
    SURPLUS_FILE = "E409", "a file that is not part of the assignment"
    NO_SET = "E410", "a folder that does not have the name of a set"
    OUTSIDE_SET = "E411", "a file outside the folder of a set"
    SWAPPED_FOLDERS = "E412", "the folders of set and student swapped"
    NOT_REPAIRABLE = "E413", "the system does not allow the file to be repaired"
    FUTURE_TIME = "E414", "a timestamp.txt with a time that has not come yet"
    NOT_READ = "E420", "reading it takes more time or memory than the limit"

    CELL_TIME = "E501", "a cell ran longer than its limit"
    KERNEL_DIED = "E502", "the kernel died"
    NOTEBOOK_TIME = "E503", "the notebook ran longer than its limit"
    ANSWER_RAISED = "E504", "an answer cell ended in an error"
    SYNTAX_ERROR = "E505", "a cell of the student's own is not Python"
    OUTPUT_CUT = "E506", "a cell wrote more output than the limit"
    NAME_MISSING = "E507", "after grading, no cell defines the name of an answer"
    NOT_EXECUTED = "E508", "it could not be executed"
    NO_MEMORY = "E509", "not enough memory on the machine that graded it"
    NOT_RECORDED = "E510", "its grades could not be recorded"
    SCORE_BY_HAND = "E511", "a score given by hand that differs from what the checks say"

    SUSPECT = "E512", "a cell reaches for what no answer needs"
    FORGED_REPLY = "E513", "answers to the tests that cannot be read"

    def __init__(self, number: str, meaning: str) -> None:
        self.number = number
        self.meaning = meaning

    def __str__(self) -> str:
        return f"{self.number} {self.name.lower().replace('_', '-')}"
