"""The commands of labctl; each is imported when it is used."""

#: name -> (module, attribute, one line of help). A test holds the lines against the commands.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "init": ("labctl.cli.init", "init", "Write a first devices.yaml and recipe."),
    "doctor": ("labctl.cli.doctor", "doctor", "List what is missing on this host."),
    "build": ("labctl.cli.build", "build", "Build tools for a target."),
    "targets": ("labctl.cli.targets", "targets", "List machine types that tools are built for."),
    "models": ("labctl.cli.models", "models", "Manage the lab's models."),
    "artifacts": (
        "labctl.cli.artifacts",
        "artifacts",
        "List, verify, compare and remove built artifacts.",
    ),
    "deploy": ("labctl.cli.deploy", "deploy", "Send tools and models to boards."),
    "store": ("labctl.cli.store", "store", "List, verify, prune and pin the files of boards."),
    "recipes": ("labctl.cli.recipes", "recipes", "List, show and copy recipes."),
    "plan": (
        "labctl.cli.plan",
        "plan",
        "Show what a recipe would do on a board, and how long it would take.",
    ),
    "run": ("labctl.cli.run", "run", "Run a recipe and print its result."),
    "batch": (
        "labctl.cli.batch",
        "batch",
        "Run a plan of recipes on many boards, each as soon as one is free.",
    ),
    "queue": (
        "labctl.cli.queue",
        "queue",
        "List the jobs of the lab's queue, in the order in which they begin.",
    ),
    "grade": (
        "labctl.cli.grade",
        "grade",
        "Grade the kept answers of an evaluation again, without any server.",
    ),
    "bench": ("labctl.cli.bench", "bench", "Measure GGUF files on a board, without a recipe."),
    "load-test": (
        "labctl.cli.load_test",
        "load_test",
        "Load a model server at an address, without a recipe.",
    ),
    "resume": ("labctl.cli.resume", "resume", "Resume an unfinished run."),
    "watch": ("labctl.cli.watch", "watch", "Show a run that another process drives."),
    "serve": (
        "labctl.cli.serve",
        "serve",
        "Serve the lab's dashboard: boards, queue, runs, trends, audit log.",
    ),
    "logs": (
        "labctl.cli.logs",
        "logs",
        "Print what happened in a run, a line for each event.",
    ),
    "report": (
        "labctl.cli.report",
        "report",
        "Print the tables of finished runs, or write a report on them.",
    ),
    "runs": ("labctl.cli.runs", "runs", "List the lab's runs, newest first."),
    "show": (
        "labctl.cli.show",
        "show",
        "Print all facts of a run or a trial with their origin, or the facts of a bundle.",
    ),
    "export": (
        "labctl.cli.export",
        "export",
        "Write a row for each trial of the named runs, or of those that meet the conditions.",
    ),
    "compare": (
        "labctl.cli.compare",
        "compare",
        "Compare runs, variants or baselines with the first of them.",
    ),
    "agreement": (
        "labctl.cli.agreement",
        "agreement",
        "Compare the answers of two servers of one model: is a host as good as the board?",
    ),
    "latency-match": (
        "labctl.cli.latency_match",
        "latency_match",
        "Show which model answers better in the same time.",
    ),
    "baseline": (
        "labctl.cli.baseline",
        "baseline",
        "Name runs that later runs are compared with.",
    ),
    "state": (
        "labctl.cli.state",
        "state",
        "Back up and restore the lab's state: baselines, leases, queue, health, tokens.",
    ),
    "bundle": (
        "labctl.cli.bundle",
        "bundle",
        "Write a run into one file that others can check and reproduce.",
    ),
    "import": (
        "labctl.cli.import_",
        "import_",
        "Import runs that were measured elsewhere: bundles, and results of llama-bench.",
    ),
    "regressions": (
        "labctl.cli.regressions",
        "regressions",
        "Find changes of results over time, and their commits.",
    ),
    "nightly": (
        "labctl.cli.nightly",
        "nightly",
        "Compare new builds with the last good ones on all boards, by a plan.",
    ),
    "reproduce": (
        "labctl.cli.reproduce",
        "reproduce",
        "Measure a bundle's run again on a board, and compare.",
    ),
    "index": ("labctl.cli.index", "index", "Manage the index of the lab's runs."),
    "boards": ("labctl.cli.boards", "boards", "List the lab's boards and their state."),
    "worker": (
        "labctl.cli.worker",
        "worker",
        "Run the queue's jobs on the boards attached to this host, until stopped.",
    ),
    "workers": (
        "labctl.cli.worker",
        "workers",
        "List the workers of all lab hosts, their boards, and if they are alive.",
    ),
    "hold": ("labctl.cli.holds", "hold", "Keep boards for yourself from now on."),
    "release": ("labctl.cli.holds", "release", "Release boards that you hold."),
    "reserve": (
        "labctl.cli.holds",
        "reserve",
        "Reserve boards for a time; without --from, list the reservations.",
    ),
    "audit": (
        "labctl.cli.audit",
        "audit",
        "Print who held, released, reserved or changed what, and why.",
    ),
    "shell": ("labctl.cli.shell", "shell", "Run a command on a board."),
    "hdc": ("labctl.cli.hdc", "hdc", "Use a board over hdc, without hdc's own program."),
    "virtual-board": (
        "labctl.cli.virtual_board",
        "virtual_board",
        "Serve virtual boards until interrupted.",
    ),
    "schema": ("labctl.cli.schema", "schema", "Print the JSON Schema of a file format."),
    "docs": ("labctl.cli.docs", "docs", "Print a page of the documentation."),
    "completion": ("labctl.cli.complete", "completion", "Print a shell completion script."),
    "help": ("labctl.cli.help", "help_", "Show the help of labctl or of a command."),
}
