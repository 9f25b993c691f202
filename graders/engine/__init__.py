"""Grading that student code cannot touch: kernels in a sandbox, verdicts in the grader's own process.

The way of a notebook: `execute.TrustedExecute` (nbgrader's preprocessor) makes a `job.Job` of it; `run.run` executes
that. Cells of the notebook run in a `kernel.Kernel`, forked from a warm parent inside a `sandbox`; grade cells run in
`trusted`. `pool` has many jobs run at a time. What runs on the kernel's side of the wall is
`graders.inside`.
"""
