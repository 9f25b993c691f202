# `make` sets everything up, builds the book and grades the sample class; `make test` checks what changed; `make help` lists the rest.
BIN := .venv/bin
READY := .venv/.ready
PYTHON ?=
WORKERS ?= 2

PYTEST = $(BIN)/python -m pytest book tests -n $(WORKERS) --dist loadscope --no-loadscope-reorder \
	--nbval --nbval-current-env --nbval-cell-timeout 300 --nbval-sanitize-with tests/nbval_sanitize.cfg --doctest-glob=errata.md
UNITS := $(patsubst %,tests/%.py,book/test_notation book/test_terms coach/test_documents coach/test_study engine/test_source graders/test_pieces graders/test_wrong \
	tools/test_chapters tools/test_grade_cells tools/test_order tools/test_prerequisites tools/test_students)

# nbgrader calls alembic by name. The packages arrive without bytecode, so each part may write what it compiles; what the
# sandbox loads, which may not, is loaded once when .venv is made (sympy and torch._dynamo take a second more without it).
export PATH := $(CURDIR)/$(BIN):$(PATH)
unexport PYTHONDONTWRITEBYTECODE
MAKEFLAGS += --no-print-directory

.PHONY: all venv book grade notebooks latest exercises students gradescope github lab bench bench-coach bench-grading bench-lighthouse check lint units test test-ci test-all clean help
.DEFAULT_GOAL := all

all: $(READY)  ## set up, build the book, grade the sample class, and say where everything is
	@$(MAKE) $(if $(findstring j,$(MAKEFLAGS)),,-j2) book grade
	@echo
	@echo "The book      _build/html/index.html"
	@echo "The grades    .venv/bin/python -m graders scores"
	@echo "The feedback  feedback/<student>/<set>/"

venv: $(READY)  ## set up .venv; done again only when the requirements change

$(READY): requirements.txt requirements-dev.txt constraints.txt pyproject.toml
	@test ! -L .venv || { echo ".venv is a link: to install from here would change the course that it belongs to. Remove the link." >&2; exit 1; }
	@python=$$(tools/find_python.sh $(PYTHON)) || exit 1; \
	$(BIN)/python -c '' 2>/dev/null || { echo "Making .venv with $$python"; "$$python" -m venv --clear .venv; }
	@echo "Installing the pinned packages (a minute or two where they are cached, longer where they are not) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --progress-bar off --no-compile -r requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c "import torch._dynamo, torch.optim, matplotlib.pyplot, ipykernel.kernelapp, nbgrader.apps, graders"
	@touch $@

book: $(READY)  ## build the book into _build/html, with warnings as errors, and check its pages
	@echo "Building the book ..."
	@mkdir -p _build
	@$(BIN)/jupyter-book build -W --keep-going -n -q . >_build/book.log 2>&1 || { cat _build/book.log >&2; exit 1; }
	@$(BIN)/python -m tools.check_book
	@echo "Built the book: _build/html/index.html"

grade: $(READY)  ## grade the sample class; fills submitted/, gradebook.db and feedback/
	@$(BIN)/python -m graders sample

notebooks: $(READY)  ## run the chapters, and bring every notebook into the committed form
	@$(BIN)/python -m tools.notebooks --execute
	@$(BIN)/python -m tools.checklist
	@$(BIN)/python -m tools.first_page

latest: $(READY)  ## run and build everything in a separate copy with the newest torch (or TORCH=2.14.1), and report what changed
	@$(BIN)/python -m tools.latest $(if $(TORCH),--torch $(TORCH)) $(if $(FRESH),--fresh)

exercises: $(READY)  ## build exercises/ again from solutions/
	@$(BIN)/python -m tools.release

students: $(READY)  ## write students/: the archives for a class and to learn alone; COACH=1 gives the class the coach too
	@$(BIN)/python -m tools.students $(if $(filter-out 0,$(COACH)),--coach)

gradescope: $(READY)  ## write what Gradescope runs for each hand-in: make gradescope SET=relu SEED=7
	@$(BIN)/python -m tools.gradescope "$(or $(SET),relu)" $(if $(SEED),--seed $(SEED))

github: $(READY)  ## write what GitHub Classroom needs for a set: make github SET=relu SEED=7
	@$(BIN)/python -m tools.github "$(or $(SET),relu)" $(if $(SEED),--seed $(SEED))

lab: $(READY)  ## open JupyterLab
	@$(BIN)/jupyter lab

bench: $(READY)  ## measure time and memory of attention, N = 256 to 8192: takes minutes; not a test
	@$(BIN)/python -m bench.attention

bench-coach: $(READY)  ## measure how long the coach's verdicts take, for every task: takes minutes; not a test
	@$(BIN)/python -m bench.coach

bench-grading: $(READY)  ## grade 60 submissions by stock nbgrader and by this project, in turn: takes half an hour; not a test
	@$(BIN)/python -m bench.grading

bench-lighthouse: $(READY)  ## run Lighthouse on the book's heaviest pages, phone and desktop: takes minutes, and the network once; not a test
	@$(BIN)/python -m bench.lighthouse

check: $(READY)  ## check style, types and imports, and run the tests that start no process: takes a minute
	@$(MAKE) -j2 lint units

lint: $(READY)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/deptry --config deptry.toml graders tools bench tests book
	@$(BIN)/mypy graders tools

units: $(READY)
	@COURSE_SETS=relu $(BIN)/python -m pytest -p no:xdist $(UNITS)

test: $(READY)  ## run the tests that are not proved yet, except the slow ones: make test, make test SET=linear, make test PART=engine
	@$(PYTEST) -p tools.proved --proved=skip --only="$(SET),$(PART)" -m "not slow" $(PYTEST_ARGS)

test-ci: $(READY)  ## run what CI runs: all quick tests, and one in four of the slow ones and of the seeds, others for each commit
	@COURSE_SEEDS=5 COURSE_SLOW=4 $(PYTEST) $(PYTEST_ARGS)

test-all: $(READY)  ## run all tests, proved or not, and the sets on twenty seeds
	@COURSE_SEEDS=20 $(PYTEST) $(PYTEST_ARGS)

clean:  ## remove what make wrote, but never a gradebook, a submission or .venv
	@rm -rf _build students .pytest_cache .ruff_cache .mypy_cache .import_linter_cache graders.egg-info
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1\t\2/p' Makefile | expand -t 18
