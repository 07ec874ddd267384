-- The tables of a ledger of release 1.0, of revision 1000.
CREATE TABLE ledger_info (
	name TEXT NOT NULL,
	value TEXT NOT NULL,
	CONSTRAINT pk_ledger_info PRIMARY KEY (name)
)
 STRICT;
CREATE TABLE ladders (
	id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	short_name TEXT NOT NULL,
	name TEXT NOT NULL,
	task TEXT NOT NULL,
	profile TEXT,
	kind TEXT NOT NULL,
	spec TEXT NOT NULL,
	created_at REAL NOT NULL,
	user_name TEXT,
	CONSTRAINT pk_ladders PRIMARY KEY (id),
	CONSTRAINT uq_ladders_key UNIQUE ("key"),
	CONSTRAINT uq_ladders_short_name UNIQUE (short_name)
)
 STRICT;
CREATE TABLE documents (
	id INTEGER NOT NULL,
	sha256 TEXT NOT NULL,
	seed_at INTEGER,
	text TEXT NOT NULL,
	CONSTRAINT pk_documents PRIMARY KEY (id),
	CONSTRAINT uq_documents_sha256 UNIQUE (sha256)
)
 STRICT;
CREATE TABLE metric_keys (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	CONSTRAINT pk_metric_keys PRIMARY KEY (id),
	CONSTRAINT uq_metric_keys_name UNIQUE (name)
)
 STRICT;
CREATE TABLE stored_runs (
	number INTEGER NOT NULL,
	id TEXT NOT NULL,
	kind TEXT NOT NULL,
	task TEXT NOT NULL,
	seed INTEGER NOT NULL,
	state TEXT NOT NULL,
	superseded INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	step INTEGER NOT NULL,
	steps INTEGER NOT NULL,
	parameters INTEGER,
	last_loss REAL,
	last_score REAL,
	last_speed REAL,
	val_accuracy REAL,
	test_accuracy REAL,
	steps_per_second REAL,
	created_at REAL NOT NULL,
	finished_at REAL,
	config_id INTEGER NOT NULL,
	execution_id INTEGER NOT NULL,
	provenance_id INTEGER NOT NULL,
	fingerprint TEXT NOT NULL,
	data_sha256 TEXT,
	result TEXT,
	error TEXT,
	CONSTRAINT pk_stored_runs PRIMARY KEY (number),
	CONSTRAINT uq_stored_runs_fingerprint UNIQUE (fingerprint, generation),
	CONSTRAINT ck_stored_runs_state CHECK (state IN ('queued', 'running', 'done', 'diverged', 'failed', 'interrupted')),
	CONSTRAINT ck_stored_runs_superseded CHECK (superseded IN (0, 1)),
	CONSTRAINT uq_stored_runs_id UNIQUE (id),
	CONSTRAINT fk_stored_runs_config_id FOREIGN KEY(config_id) REFERENCES documents (id),
	CONSTRAINT fk_stored_runs_execution_id FOREIGN KEY(execution_id) REFERENCES documents (id),
	CONSTRAINT fk_stored_runs_provenance_id FOREIGN KEY(provenance_id) REFERENCES documents (id)
)
 STRICT;
CREATE INDEX ix_runs_not_done ON stored_runs (number) WHERE state != 'done';
CREATE INDEX ix_runs_queued ON stored_runs (number) WHERE state = 'queued';
CREATE INDEX ix_runs_running ON stored_runs (number) WHERE state = 'running';
CREATE TABLE ladder_runs (
	id INTEGER NOT NULL,
	ladder INTEGER NOT NULL,
	run INTEGER NOT NULL,
	rung TEXT NOT NULL,
	stage TEXT NOT NULL,
	position INTEGER NOT NULL,
	CONSTRAINT pk_ladder_runs PRIMARY KEY (id),
	CONSTRAINT uq_ladder_runs_run UNIQUE (run, ladder, rung, stage),
	CONSTRAINT fk_ladder_runs_ladder FOREIGN KEY(ladder) REFERENCES ladders (id),
	CONSTRAINT fk_ladder_runs_run FOREIGN KEY(run) REFERENCES stored_runs (number)
)
 STRICT;
CREATE INDEX ix_ladder_runs_ladder ON ladder_runs (ladder, rung, stage, position, run);
CREATE TABLE stored_attempts (
	run INTEGER NOT NULL,
	n INTEGER NOT NULL,
	host TEXT NOT NULL,
	boot TEXT NOT NULL,
	namespace TEXT NOT NULL,
	pid INTEGER NOT NULL,
	pid_started REAL NOT NULL,
	started_at REAL NOT NULL,
	heartbeat_at REAL NOT NULL,
	seen_at REAL NOT NULL,
	ended_at REAL,
	outcome TEXT,
	reason TEXT,
	resumed_from INTEGER,
	numerics INTEGER NOT NULL,
	environment_id INTEGER NOT NULL,
	code TEXT,
	user_name TEXT,
	CONSTRAINT pk_stored_attempts PRIMARY KEY (run, n),
	CONSTRAINT ck_stored_attempts_outcome CHECK (outcome IN ('done', 'diverged', 'failed', 'interrupted', 'exited', 'rejected')),
	CONSTRAINT fk_stored_attempts_run FOREIGN KEY(run) REFERENCES stored_runs (number),
	CONSTRAINT fk_stored_attempts_environment_id FOREIGN KEY(environment_id) REFERENCES documents (id)
)
 STRICT;
CREATE TABLE metrics (
	run INTEGER NOT NULL,
	"key" INTEGER NOT NULL,
	step INTEGER NOT NULL,
	value REAL,
	CONSTRAINT pk_metrics PRIMARY KEY (run, "key", step),
	CONSTRAINT fk_metrics_run FOREIGN KEY(run) REFERENCES stored_runs (number),
	CONSTRAINT fk_metrics_key FOREIGN KEY("key") REFERENCES metric_keys (id)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE eigenvalues (
	run INTEGER NOT NULL,
	moment TEXT NOT NULL,
	layer INTEGER NOT NULL,
	pairs TEXT,
	CONSTRAINT pk_eigenvalues PRIMARY KEY (run, moment, layer),
	CONSTRAINT ck_eigenvalues_moment CHECK (moment IN ('start', 'end')),
	CONSTRAINT fk_eigenvalues_run FOREIGN KEY(run) REFERENCES stored_runs (number)
)
 WITHOUT ROWID,
 STRICT;
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	ladder INTEGER,
	run INTEGER,
	attempt INTEGER,
	time REAL NOT NULL,
	kind TEXT NOT NULL,
	text TEXT NOT NULL,
	payload TEXT,
	CONSTRAINT fk_events_ladder FOREIGN KEY(ladder) REFERENCES ladders (id),
	CONSTRAINT fk_events_run FOREIGN KEY(run) REFERENCES stored_runs (number)
)
 STRICT;
CREATE INDEX ix_events_ladder ON events (ladder) WHERE ladder IS NOT NULL;
CREATE INDEX ix_events_run ON events (run) WHERE run IS NOT NULL;
CREATE TABLE tags (
	run INTEGER NOT NULL,
	name TEXT NOT NULL,
	CONSTRAINT pk_tags PRIMARY KEY (run, name),
	CONSTRAINT fk_tags_run FOREIGN KEY(run) REFERENCES stored_runs (number)
)
 STRICT;
CREATE TABLE exclusions (
	run INTEGER NOT NULL,
	why TEXT NOT NULL,
	time REAL NOT NULL,
	CONSTRAINT pk_exclusions PRIMARY KEY (run),
	CONSTRAINT fk_exclusions_run FOREIGN KEY(run) REFERENCES stored_runs (number)
)
 STRICT;
CREATE TABLE checkpoints (
	id INTEGER NOT NULL,
	run INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	step INTEGER NOT NULL,
	state TEXT NOT NULL,
	path TEXT NOT NULL,
	bytes INTEGER,
	sha256 TEXT,
	CONSTRAINT pk_checkpoints PRIMARY KEY (id),
	CONSTRAINT fk_checkpoints_run FOREIGN KEY(run, attempt) REFERENCES stored_attempts (run, n),
	CONSTRAINT ck_checkpoints_state CHECK (state IN ('saving', 'committed'))
)
 STRICT;
CREATE INDEX ix_checkpoints_run ON checkpoints (run, step);
CREATE TRIGGER runs_finished_stay BEFORE UPDATE OF number, id, kind, task, seed, state, generation, attempt, step, steps, parameters, last_loss, last_score, last_speed, val_accuracy, test_accuracy, steps_per_second, created_at, finished_at, config_id, execution_id, provenance_id, fingerprint, data_sha256, result, error ON stored_runs WHEN (OLD.state IN ('done', 'diverged')) BEGIN SELECT RAISE(ABORT, 'a finished run never changes'); END;
CREATE TRIGGER runs_finished_not_deleted BEFORE DELETE ON stored_runs WHEN (OLD.state IN ('done', 'diverged')) BEGIN SELECT RAISE(ABORT, 'a finished run is never deleted'); END;
CREATE TRIGGER documents_stay BEFORE UPDATE ON documents BEGIN SELECT RAISE(ABORT, 'a document never changes'); END;
CREATE TRIGGER documents_not_deleted BEFORE DELETE ON documents BEGIN SELECT RAISE(ABORT, 'a document is never deleted'); END;
CREATE VIEW runs AS
        SELECT number, id, fingerprint, generation, superseded, kind, task, seed, state, attempt, step, steps,
            parameters,
            (SELECT coalesce(
                    substr(d.text, 1, CAST(d.seed_at AS integer)) || r.seed
                        || substr(d.text, CAST(d.seed_at AS integer) + 5), d.text)
                FROM documents d WHERE d.id = r.config_id) AS config,
            (SELECT d.text FROM documents d WHERE d.id = r.execution_id) AS execution,
            (SELECT d.text FROM documents d WHERE d.id = r.provenance_id) AS provenance,
            result, error, data_sha256, created_at, finished_at,
            last_loss, last_score, last_speed, val_accuracy, test_accuracy, steps_per_second
        FROM stored_runs r;
CREATE VIEW attempts AS
        SELECT run, n, host, boot, namespace, pid, pid_started, started_at, heartbeat_at, seen_at, ended_at, outcome,
            reason, resumed_from, (SELECT d.text FROM documents d WHERE d.id = a.environment_id) AS environment, code,
            numerics, user_name
        FROM stored_attempts a;
CREATE TABLE lrurun_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT lrurun_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO lrurun_version VALUES ('1000');
