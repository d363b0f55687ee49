"""The tables of the SQLite operation store. A change here is a new version with the statements that lead to it."""

COLUMNS = (
    "operation_id, instance_id, upn, conversation_id, agent_name, turn_number, status, status_message, prompt_tokens,"
    " completion_tokens, result, fingerprint, created_at, updated_at, last_step, owner, generation, lease_until"
)
"""The columns an `Operation` is read from, named like its fields; the last three make its lease."""

_FIRST = (
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
"""Operations with their requests, journal, events and mailbox messages."""

_LEASES = (
    "ALTER TABLE operations ADD COLUMN owner TEXT",
    "ALTER TABLE operations ADD COLUMN generation INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE operations ADD COLUMN granted_at REAL",
    "ALTER TABLE operations ADD COLUMN lease_until REAL",
    "ALTER TABLE operations ADD COLUMN is_pruned INTEGER NOT NULL DEFAULT 0",
    "DROP INDEX operations_by_conversation",
    "CREATE INDEX operations_by_turn ON operations (instance_id, upn_key, conversation_id, turn_number)",
    "CREATE INDEX operations_waiting ON operations (instance_id, upn_key, conversation_id, turn_number) WHERE status = 'InProgress'",
    "CREATE INDEX operations_to_prune ON operations (instance_id, updated_at) WHERE status <> 'InProgress' AND NOT is_pruned",
    """CREATE TABLE effects (
        operation_id TEXT NOT NULL REFERENCES operations,
        name TEXT NOT NULL,
        begun_by INTEGER NOT NULL,
        outcome TEXT,
        changed_at TEXT NOT NULL,
        PRIMARY KEY (operation_id, name)
    )""",
    """CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        operation_id TEXT NOT NULL REFERENCES operations
    ) WITHOUT ROWID""",
    "CREATE INDEX runs_by_operation ON runs (operation_id)",
    """CREATE TABLE conversations (
        instance_id TEXT NOT NULL,
        upn_key TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        last_turn INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (instance_id, upn_key, conversation_id)
    )""",
)
"""Leases, effects, conversations, and what pruning needs to know."""

STEPS_BY_VERSION = (_FIRST, _LEASES)
"""What leads from each version to the next; an empty file has version 0."""

SCHEMA_VERSION = len(STEPS_BY_VERSION)
"""The version this service reads and writes."""
