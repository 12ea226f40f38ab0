"""The commands of labctl; each is imported when it is used."""

#: A command: module, attribute, one line of help. A test holds the lines against the commands.
Command = tuple[str, str, str]
#: Groups in the order of use, as `labctl --help` shows them.
GROUPS: dict[str, dict[str, Command]] = {
    "Set up a lab": {
        "init": ("labctl.cli.init", "init", "Write a first devices.yaml and recipe."),
        "doctor": ("labctl.cli.doctor", "doctor", "List what is missing on this host."),
        "boards": ("labctl.cli.boards", "boards", "List the lab's boards and their state."),
    },
    "Prepare": {
        "recipes": ("labctl.cli.recipes", "recipes", "List, show and copy recipes."),
        "build": ("labctl.cli.build", "build", "Build tools for a target."),
        "artifacts": (
            "labctl.cli.artifacts",
            "artifacts",
            "List, verify, compare and remove built artifacts.",
        ),
        "models": ("labctl.cli.models", "models", "Manage the lab's models."),
        "deploy": ("labctl.cli.deploy", "deploy", "Send tools and models to boards."),
        "store": ("labctl.cli.store", "store", "List, verify, prune and pin the files of boards."),
    },
    "Measure": {
        "plan": (
            "labctl.cli.plan",
            "plan",
            "Show what a recipe would do on a board, and how long it would take.",
        ),
        "run": ("labctl.cli.run", "run", "Run a recipe and print its result."),
        "bench": ("labctl.cli.bench", "bench", "Measure GGUF files on a board, without a recipe."),
        "load-test": (
            "labctl.cli.load_test",
            "load_test",
            "Load a model server at an address, without a recipe.",
        ),
        "resume": ("labctl.cli.resume", "resume", "Resume an unfinished run."),
        "watch": ("labctl.cli.watch", "watch", "Show a run that another process drives."),
        "logs": ("labctl.cli.logs", "logs", "Print what happened in a run, a line for each event."),
    },
    "Use results": {
        "runs": ("labctl.cli.runs", "runs", "List the lab's runs, newest first."),
        "report": (
            "labctl.cli.report",
            "report",
            "Print the tables of finished runs, or write a report on them.",
        ),
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
        "grade": (
            "labctl.cli.grade",
            "grade",
            "Grade the kept answers of an evaluation again, without any server.",
        ),
        "compare": (
            "labctl.cli.compare",
            "compare",
            "Compare runs, variants or baselines with the first of them.",
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
        "regressions": (
            "labctl.cli.regressions",
            "regressions",
            "Find changes of results over time, and their commits.",
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
        "reproduce": (
            "labctl.cli.reproduce",
            "reproduce",
            "Measure a bundle's run again on a board, and compare.",
        ),
    },
    "Share boards": {
        "queue": (
            "labctl.cli.queue",
            "queue",
            "List the jobs of the lab's queue, in the order in which they begin.",
        ),
        "batch": (
            "labctl.cli.batch",
            "batch",
            "Run a plan of recipes on many boards, each as soon as one is free.",
        ),
        "nightly": (
            "labctl.cli.nightly",
            "nightly",
            "Compare new builds with the last good ones on all boards, by a plan.",
        ),
        "worker": (
            "labctl.cli.worker",
            "worker",
            "Run the queue's jobs on the boards attached to this host, until stopped.",
        ),
        "hold": (
            "labctl.cli.holds",
            "hold",
            "Keep boards for yourself, from now on or from a later time.",
        ),
        "release": ("labctl.cli.holds", "release", "Release boards that you hold."),
        "serve": (
            "labctl.cli.serve",
            "serve",
            "Serve the lab's dashboard: boards, queue, runs, trends, audit log.",
        ),
        "state": (
            "labctl.cli.state",
            "state",
            "Back up, restore and audit the lab's state: baselines, leases, queue, health, tokens.",
        ),
    },
    "Use a board by hand, and get help": {
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
    },
}
COMMANDS = {name: one for group in GROUPS.values() for name, one in group.items()}
