"""nbgrader's settings for this course, read from the course's folder by nbgrader and by `python -m graders`."""

import os
import sys
from pathlib import Path

from nbconvert.preprocessors import ClearMetadataPreprocessor, CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    GetGrades,
    IgnorePattern,
    LimitOutput,
    OverwriteCells,
    OverwriteKernelspec,
)

# The graders lie beside this file. A server that cannot import them grades as nbgrader does, without a sandbox.
sys.path.append(str(Path(__file__).resolve().parent))

from graders.classroom.collect import Collector, Extractor
from graders.classroom.export import Export
from graders.classroom.feedback import Feedback, clean_page
from graders.classroom.lateness import LatePolicy
from graders.classroom.nbgrader_steps import CleanSubmission, SaveGrades, SubmissionExporter, TrustedExecute
from graders.classroom.pages import FeedbackExporter

# A new gradebook asks the `alembic` console script for its version; without it nbgrader leaves a half-made database.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "custom-gradients"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"

# A notebook is read within limits, and whatever editor wrote it.
c.Autograde.exporter_class = SubmissionExporter

# Before nbgrader's own repairs: refuse links, drop files nobody asked for, bring deleted and altered cells back.
c.Autograde.sanitize_preprocessors = [
    ClearOutput,
    CleanSubmission,
    DeduplicateIds,
    OverwriteKernelspec,
    OverwriteCells,
    CheckCellMetadata,
]
c.OverwriteCells.add_missing_cells = True
c.Exporter.optimistic_validation = True  # a notebook's form is checked after the last step, not after each

# nbgrader's own list with an execution that student code cannot touch, and grades that are saved all at once.
c.Autograde.autograde_preprocessors = [
    TrustedExecute,
    IgnorePattern,
    ClearMetadataPreprocessor,
    LimitOutput,
    SaveGrades,
    AssignLatePenalties,
    CheckCellMetadata,
]
c.TrustedExecute.timeout = 30  # seconds a cell
c.TrustedExecute.notebook_timeout = 120  # seconds a notebook
c.TrustedExecute.max_output = 1_000_000  # characters a cell
c.TrustedExecute.memory = 2 << 30  # bytes a process, beyond what Python and torch take
c.TrustedExecute.visible = False  # True: run visible checks and figures as well, for the feedback; it takes longer
c.TrustedExecute.sandbox = "required"  # "off" where there is none: what is handed in can then do all that you can

# What a late hand-in loses: nothing, unless one of the lines with a method is taken in.
c.AssignLatePenalties.plugin_class = LatePolicy
# c.LatePolicy.penalty_method = "zero"  # everything
# c.LatePolicy.penalty_method = "daily"  # so much for each day that has begun:
c.LatePolicy.percent_a_day = 10  # percent of what the hand-in has earned
c.LatePolicy.points_a_day = 0  # and points
c.LatePolicy.minutes_of_grace = 0  # the first day begins so long after the due date
c.LatePolicy.days_at_most = 0  # what comes later earns nothing; 0: no end

# Feedback: points and messages, without hidden tests, and without scripts in a student's output.
c.GenerateFeedback.exporter_class = FeedbackExporter
c.GenerateFeedback.preprocessors = [GetGrades, Feedback, CSSHTMLHeaderPreprocessor]
c.HTMLExporter.sanitize_html = True
c.HTMLExporter.filters = {"strip_files_prefix": clean_page}  # nbgrader's template does not sanitise Markdown cells

# nbgrader's Validate button and `nbgrader validate`: a check cell that fails is a failure. nbgrader itself looks at
# grade cells alone, which hold a comment in what students have: it would call an untouched notebook a success.
c.Validator.validate_all = True

# grades.csv: each field quoted where it must be, and none that a spreadsheet would compute.
c.ExportApp.plugin_class = Export

# Submissions from folders and archives: `python -m graders collect`, or `nbgrader zip_collect`.
c.ZipCollectApp.collector_plugin = Collector
c.ZipCollectApp.extractor_plugin = Extractor
