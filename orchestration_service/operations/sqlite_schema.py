"""The tables of the SQLite operation store. A change here needs a new version and a way from the old one."""

SCHEMA_VERSION = 1

COLUMNS = (
    "operation_id, instance_id, upn, conversation_id, agent_name, turn_number, status, status_message, prompt_tokens,"
    " completion_tokens, result, fingerprint, created_at, updated_at, last_step"
)
"""The columns an `Operation` is read from, named like its fields."""

SCHEMA = (
    """CREATE TABLE operations (
        operation_id TEXT PRIMARY KEY,
        instance_id TEXT NOT NULL,
        upn TEXT NOT NULL,
        upn_key TEXT NOT NULL,
        conversation_id TEXT,
        agent_name TEXT NOT NULL,
        turn_number INTEGER NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('InProgress', 'Completed', 'Failed')),
        status_message TEXT NOT NULL,
        prompt_tokens INTEGER NOT NULL DEFAULT 0,
        completion_tokens INTEGER NOT NULL DEFAULT 0,
        result TEXT CHECK ((result IS NULL) = (status = 'InProgress')),
        fingerprint TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        last_step TEXT
    )""",
    "CREATE INDEX operations_by_conversation ON operations (instance_id, upn_key, conversation_id)",
    "CREATE INDEX operations_in_progress ON operations (created_at) WHERE status = 'InProgress'",
    """CREATE TABLE requests (
        operation_id TEXT PRIMARY KEY REFERENCES operations,
        body BLOB NOT NULL,
        identity_header TEXT NOT NULL
    )""",
    """CREATE TABLE steps (
        operation_id TEXT NOT NULL REFERENCES operations,
        step TEXT NOT NULL,
        data TEXT NOT NULL,
        recorded_at TEXT NOT NULL
    )""",
    "CREATE INDEX steps_by_operation ON steps (operation_id)",
    """CREATE TABLE events (
        operation_id TEXT NOT NULL REFERENCES operations,
        sequence INTEGER NOT NULL,
        event TEXT NOT NULL,
        PRIMARY KEY (operation_id, sequence)
    ) WITHOUT ROWID""",
    """CREATE TABLE messages (
        run_id TEXT NOT NULL,
        direction TEXT NOT NULL CHECK (direction IN ('in', 'out')),
        sequence INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (run_id, direction, sequence)
    )""",
)
"""Statements that make an empty file into a store."""
