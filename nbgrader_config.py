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
    SaveAutoGrades,
)

from graders.collect import Collector
from graders.execute import LimitedExecute
from graders.feedback import Feedback, clean_page
from graders.preprocess import CleanSubmission

# A new gradebook asks the `alembic` console script for its version; without it nbgrader leaves a half-made database.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "custom-gradients"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"

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

# nbgrader's own list with the execution that keeps limits; another way to execute takes its place here.
c.Autograde.autograde_preprocessors = [
    LimitedExecute,
    IgnorePattern,
    ClearMetadataPreprocessor,
    LimitOutput,
    SaveAutoGrades,
    AssignLatePenalties,
    CheckCellMetadata,
]
c.Execute.timeout = 30  # seconds a cell
c.LimitedExecute.notebook_timeout = 120  # seconds a notebook
c.LimitedExecute.max_output = 1_000_000  # characters a cell
c.LimitedExecute.preload = (  # what every notebook does first, done while the one before still runs
    "import torch, matplotlib.pyplot; "
    "torch.autograd.gradcheck(torch.sin, torch.ones(1, dtype=torch.double, requires_grad=True))"
)
c.Execute.shutdown_kernel = "immediate"
if os.name == "posix":
    c.KernelManager.transport = "ipc"  # no port that another process could connect to

# Feedback: points and messages, without hidden tests, and without scripts in a student's output.
c.GenerateFeedback.preprocessors = [GetGrades, Feedback, CSSHTMLHeaderPreprocessor]
c.HTMLExporter.sanitize_html = True
c.HTMLExporter.filters = {"strip_files_prefix": clean_page}  # nbgrader's template does not sanitise Markdown cells

# Submissions from folders and archives: `python -m graders collect`, or `nbgrader zip_collect`.
c.ZipCollectApp.collector_plugin = Collector
