"""Changes of the lab's state beyond single rows; SQLAlchemy compiles each statement once.

Names of values differ from names of columns.
"""

from sqlalchemy import Double, Text, and_, bindparam, case, exists, or_, select

from labctl.state.sql_tables import GROUP, JOB, LEASE, TABLE

_HEALTH, _WORKER = TABLE["board_health"], TABLE["worker"]
_CONTENT, _LIST = TABLE["job_content"], TABLE["board_list"]
_JOB = bindparam("of_job", type_=Text)
_UNTIL, _NOW = bindparam("until", type_=Double), bindparam("moment", type_=Double)

RENEW_JOBS = (
    JOB.update()
    .where(JOB.c.worker == bindparam("of_worker"), JOB.c.state.in_(("running", "waiting")))
    .values(expires=_UNTIL)
)
RENEW_GROUPS = (
    GROUP.update()
    .where(GROUP.c.owner == bindparam("of_worker"), GROUP.c.expires > 0)
    .values(expires=_UNTIL)
)
#: Lets a job of a process continue to wait, even if it was cancelled as ``left``.
WAIT_ON = (
    JOB.update()
    .where(
        JOB.c.id == _JOB,
        or_(
            JOB.c.state == "waiting",
            and_(JOB.c.state == "cancelled", JOB.c.reason == bindparam("left")),
        ),
    )
    .values(expires=_UNTIL, state="waiting", worker=None, ended_at=None)
)
NOTE_REASON = (
    JOB.update().where(JOB.c.id == _JOB, JOB.c.state == "waiting").values(reason=bindparam("why"))
)
COUNT_JOB = (
    _HEALTH.update()
    .where(_HEALTH.c.board == bindparam("of_board"))
    .values(jobs_since_check=_HEALTH.c.jobs_since_check + 1)
)
DROP_CONTENT, DROP_LIST = (
    table.delete().where(
        table.c.sha256 == bindparam("digest"), ~exists().where(column == bindparam("digest"))
    )
    for table, column in ((_CONTENT, JOB.c.request), (_LIST, JOB.c.boards))
)
#: Removes groups that began long ago and have no job.
DROP_GROUPS = GROUP.delete().where(
    GROUP.c.made_at < bindparam("before"),
    GROUP.c.id.not_in(select(JOB.c.group_id).where(JOB.c.group_id.is_not(None))),
)
DROP_WORKERS = _WORKER.delete().where(_WORKER.c.alive_at.between(0, bindparam("before")))

_MINE = and_(
    LEASE.c.board == bindparam("of_board"),
    LEASE.c.token == bindparam("of_token"),
    LEASE.c.expires > _NOW,
)
RENEW_LEASE, RENEW_JOB_OF_LEASE = (
    table.update()
    .where(*conditions)
    .values(expires=case((table.c.expires > _UNTIL, table.c.expires), else_=_UNTIL))
    for table, conditions in (
        (LEASE, (_MINE,)),
        (
            JOB,
            (
                JOB.c.id == _JOB,
                JOB.c.runner == "lease",
                JOB.c.state == "running",
                exists().where(_MINE),
            ),
        ),
    )
)
RAISE_EPOCH = (
    LEASE.update()
    .where(_MINE, LEASE.c.epoch < bindparam("number"))
    .values(epoch=bindparam("number"))
)
END_LEASES = LEASE.update().values(expires=None)
