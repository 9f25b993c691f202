"""Set 07: LogSumExp, online_logsumexp, StreamedSoftmax, CrossEntropy; and the chapter's LogSumExp1d, SoftCrossEntropy."""

from graders.sets import found

TASKS, CHAPTER = found(__name__)
