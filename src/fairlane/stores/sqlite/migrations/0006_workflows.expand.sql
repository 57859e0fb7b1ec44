-- Workflows: jobs that wait for each other (docs/decisions/0019). A node that waits has a row in fairlane_held with the
-- queue '': it stands in no queue's line, so that whoever releases held jobs, older code too, passes it by.
create table fairlane_workflow (
  seq              integer primary key autoincrement,
  id               blob not null,
  name             text not null,
  tenant           text not null,
  idempotency_key  text,
  correlation_id   text,
  created_by       text,
  enqueued_at      integer not null,
  cancelled_at     integer,
  nodes            integer not null,
  gates            integer not null
);
create unique index fairlane_workflow_id on fairlane_workflow (id);
create unique index fairlane_workflow_key on fairlane_workflow (tenant, idempotency_key)
  where idempotency_key is not null;
create index fairlane_workflow_tenant on fairlane_workflow (tenant);

-- workflow: its seq. seq: of the job that stands for the node now. counts_for: a JSON list of gates.
-- again: its first end is counted already, and its job is another one since. skipped: its gate ended it, unneeded.
create table fairlane_node (
  workflow    integer not null,
  n           integer not null,
  name        text not null,
  seq         integer not null,
  gate        integer,
  counts_for  text not null,
  again       integer not null default 0,
  skipped     integer not null default 0,
  primary key (workflow, n)
) without rowid;
create unique index fairlane_node_seq on fairlane_node (seq);
create unique index fairlane_node_name on fairlane_node (workflow, name);
create index fairlane_node_gate on fairlane_node (workflow, gate, n) where gate is not null;

-- reached: the last node let go, or ended, while it is opening, closing or skipping.
create table fairlane_gate (
  workflow    integer not null,
  n           integer not null,
  opens       text not null,
  waits       integer not null,
  failed      integer not null default 0,
  counts_for  integer,
  everyone    integer not null default 0,
  state       text not null default 'waiting',
  reached     integer not null default -1,
  primary key (workflow, n)
) without rowid;
create index fairlane_gate_moving on fairlane_gate (workflow, n) where state in ('opening', 'closing', 'skipping');

-- Figures of nodes that lie side by side: n is that of the node divided by 64.
create table fairlane_tally (
  workflow   integer not null,
  n          integer not null,
  total      integer not null,
  waiting    integer not null,
  completed  integer not null default 0,
  dead       integer not null default 0,
  cancelled  integer not null default 0,
  skipped    integer not null default 0,
  primary key (workflow, n)
) without rowid;
