"""SQL that makes the tables of the lab's state, on SQLite and on PostgreSQL.

A released step is never changed; changes are new steps.
"""

BASELINES = (
    """
    CREATE TABLE baseline (
        name TEXT PRIMARY KEY,
        variant TEXT,
        note TEXT,
        set_by TEXT NOT NULL,
        set_at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE baseline_run (
        baseline TEXT NOT NULL,
        position INTEGER NOT NULL,
        run TEXT NOT NULL,
        PRIMARY KEY (baseline, position)
    )
    """,
)

#: Times are seconds since 1970 in UTC, by the clock of the database, which alone is asked.
FARM = (
    """
    CREATE TABLE accepted_slowdown (
        plan TEXT NOT NULL,
        row_name TEXT NOT NULL,
        variant TEXT NOT NULL,
        ratio DOUBLE PRECISION NOT NULL,
        night TEXT NOT NULL,
        source TEXT NOT NULL,
        good TEXT NOT NULL,
        reason TEXT,
        made_by TEXT NOT NULL,
        made_at TEXT NOT NULL,
        PRIMARY KEY (plan, row_name, variant)
    )
    """,
    # The last epoch of a board stays when its lease ends.
    """
    CREATE TABLE board_lease (
        board TEXT PRIMARY KEY,
        epoch BIGINT NOT NULL,
        token TEXT,
        holder TEXT,
        host TEXT,
        pid INTEGER,
        kind TEXT NOT NULL,
        purpose TEXT,
        job TEXT,
        hardware TEXT,
        since DOUBLE PRECISION,
        expires DOUBLE PRECISION
    )
    """,
    # Names this state on the boards, among those of other labs.
    "CREATE TABLE state_identity (id TEXT PRIMARY KEY)",
    """
    CREATE TABLE reservation (
        id TEXT PRIMARY KEY,
        board TEXT NOT NULL,
        kind TEXT NOT NULL,
        holder TEXT NOT NULL,
        begins DOUBLE PRECISION NOT NULL,
        ends DOUBLE PRECISION NOT NULL,
        reason TEXT,
        made_by TEXT NOT NULL,
        made_at DOUBLE PRECISION NOT NULL
    )
    """,
    """
    CREATE TABLE board_health (
        board TEXT PRIMARY KEY,
        health TEXT,
        since DOUBLE PRECISION,
        reason TEXT,
        made_by TEXT,
        evidence TEXT,
        state TEXT,
        firmware TEXT,
        checked_at DOUBLE PRECISION,
        checked_run TEXT,
        jobs_since_check INTEGER NOT NULL DEFAULT 0,
        check_wanted_at DOUBLE PRECISION,
        check_wanted_for TEXT,
        contact TEXT,
        contact_at DOUBLE PRECISION
    )
    """,
    """
    CREATE TABLE board_event (
        id BIGINT PRIMARY KEY,
        board TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL,
        kind TEXT NOT NULL,
        value TEXT NOT NULL,
        reason TEXT,
        made_by TEXT NOT NULL,
        details TEXT
    )
    """,
    """
    CREATE TABLE job (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        runner TEXT NOT NULL,
        name TEXT NOT NULL,
        request TEXT NOT NULL, -- of job_content
        boards TEXT NOT NULL, -- of board_list
        tried TEXT NOT NULL,
        broken TEXT NOT NULL,
        uses TEXT NOT NULL,
        priority INTEGER NOT NULL,
        position DOUBLE PRECISION NOT NULL,
        submitter TEXT NOT NULL,
        submitted_at DOUBLE PRECISION NOT NULL,
        expected_seconds DOUBLE PRECISION,
        max_seconds DOUBLE PRECISION NOT NULL,
        state TEXT NOT NULL,
        board TEXT,
        worker TEXT,
        attempts INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0,
        expires DOUBLE PRECISION,
        stop TEXT,
        run TEXT,
        started_at DOUBLE PRECISION,
        ended_at DOUBLE PRECISION,
        exit_status INTEGER,
        blame TEXT,
        reason TEXT,
        group_id TEXT,
        unit TEXT,
        home TEXT
    )
    """,
    # Without an owner its jobs need nobody; else none begins once the owner has expired.
    """
    CREATE TABLE job_group (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        submitter TEXT NOT NULL,
        restarts INTEGER NOT NULL, -- 1: a unit that is broken off between its jobs is cancelled
        owner TEXT,
        boards TEXT NOT NULL, -- on which its owner runs its jobs, where no worker does
        leaves TEXT NOT NULL, -- jobs and contents that its owner cannot run now
        expires DOUBLE PRECISION,
        made_at DOUBLE PRECISION NOT NULL
    )
    """,
    # Jobs share both, which never change: their names are SHA-256 of what they have.
    """
    CREATE TABLE job_content (
        sha256 TEXT PRIMARY KEY,
        content TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE board_list (
        sha256 TEXT NOT NULL,
        place INTEGER NOT NULL,
        board TEXT NOT NULL,
        PRIMARY KEY (sha256, place)
    )
    """,
    """
    CREATE TABLE worker (
        name TEXT PRIMARY KEY,
        host TEXT NOT NULL,
        boards TEXT NOT NULL,
        leaves TEXT NOT NULL, -- jobs and contents that it cannot run
        version TEXT NOT NULL,
        started_at DOUBLE PRECISION NOT NULL,
        alive_at DOUBLE PRECISION NOT NULL
    )
    """,
    """
    CREATE TABLE stored_run (
        run TEXT PRIMARY KEY,
        sha256 TEXT NOT NULL,
        host TEXT NOT NULL,
        stored_at DOUBLE PRECISION NOT NULL
    )
    """,
    """
    CREATE TABLE audit (
        id BIGINT PRIMARY KEY,
        at DOUBLE PRECISION NOT NULL,
        actor TEXT NOT NULL,
        via TEXT NOT NULL,
        action TEXT NOT NULL,
        subject TEXT NOT NULL,
        reason TEXT,
        details TEXT
    )
    """,
    """
    CREATE TABLE access_token (
        sha256 TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        made_by TEXT NOT NULL,
        made_at DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION
    )
    """,
    "CREATE INDEX board_event_by_board ON board_event (board, id)",
    "CREATE INDEX job_by_state ON job (state)",
    # Of a damaged state nobody knows that the job does not run.
    "CREATE INDEX job_begun ON job (id) WHERE state NOT IN ('waiting', 'done', 'cancelled')",
    "CREATE INDEX job_not_ended ON job (id) WHERE state NOT IN ('done', 'cancelled')",
    "CREATE INDEX job_by_expiry ON job (expires)",
    "CREATE INDEX job_by_position ON job (position)",
    "CREATE INDEX job_by_end ON job (ended_at)",
    "CREATE INDEX job_by_board ON job (board, ended_at)",
    "CREATE INDEX job_by_group ON job (group_id, ended_at)",
    "CREATE INDEX job_by_unit ON job (unit)",
    "CREATE INDEX job_kept ON job (board) WHERE state = 'waiting' AND board IS NOT NULL",
    "CREATE INDEX job_by_request ON job (request)",
    "CREATE INDEX job_by_boards ON job (boards)",
    "CREATE INDEX job_that_broke ON job (id) WHERE broken <> '{}'",
    "CREATE INDEX board_list_by_board ON board_list (board)",
    "CREATE INDEX reservation_by_board ON reservation (board, ends)",
    "CREATE INDEX audit_by_time ON audit (at)",
)
