"""How a cell may end besides by itself: the names that its error output carries."""

CELL_TIME, NOTEBOOK_TIME, KERNEL_DIED, OUTPUT_CUT = "CellTimeLimit", "NotebookTimeLimit", "KernelDied", "OutputLimit"
CUT = "output cut: this cell wrote more than"
