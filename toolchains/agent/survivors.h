/* Processes of jobs whose supervisor is gone.
 *
 * A supervisor ends all of its job, and a PID namespace ends with it. Where there is none, a job of the
 * same user can kill its supervisor, and a supervisor may be killed otherwise. What lives on then is
 * known by several signs, for a hostile job puts off some of them:
 *
 *     limit        its hard limit of file locks, a number that no kernel since 2.4.25 looks at, is the
 *                  one that mark_job() gives each job. All descendants inherit it, and only who has
 *                  CAP_SYS_RESOURCE can raise it. A job that lowers it further puts off this sign: a
 *                  limit that somebody gave a service or a container looks the same
 *     environment  it carries LABCTL_JOB of a job below the directory of all jobs
 *     folder       a file that it has open, or its program, is there. Its working directory is no
 *                  sign: a server that somebody started from a shell there has it too
 *     store        its program is in the store beside that directory
 *
 *     supervisor   it is `agent run` of a job that is to have ended, whose files the job has changed
 *
 * Folder and store count only where no other process stands above it but the first of the machine, and
 * such with these signs: people look at files of jobs too. A supervisor that is not to end, of whatever
 * board, is no survivor, and what stands below it is none. It is known by its arguments, by a limit that
 * no job has, and by the agent's file that it executes: nothing is believed that stands in files of the
 * job's directory, which the job can write. Each board has a limit of its own for its jobs, for several
 * may share a kernel: it comes from the directory of all jobs, for a virtual board from its name, and is
 * greater then.
 */
#ifndef LABCTL_SURVIVORS_H
#define LABCTL_SURVIVORS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "json.h"

#define SURVIVORS_MAX 16

struct survivor {
    pid_t pid;
    char name[64];
    const char *sign;
};

struct survivors {
    int count; /* of all that were found, each once */
    struct survivor list[SURVIVORS_MAX]; /* the first of them */
    struct survivor last;                /* who was there at the last look */
};

/* In a job's process, before it becomes the program. dir: the real path of the job's directory. */
void mark_job(const char *dir);

/* Kill what outlived its supervisor until a look finds nothing, for at most ns; false when something
 * stays. jobs: the real path of the directory of all jobs. ended: that, or one job's: what supervises
 * jobs there ends too; NULL: they go on. */
bool survivors_end(const char *jobs, const char *ended, int64_t ns, struct survivors *found);

/* The living supervisor of the job in a directory (its real path); 0: none. */
pid_t supervisor_of(const char *dir);

/* The member "survivors", if there were any. */
void survivors_write(const struct survivors *found, struct json *json);
/* Says which one stays, and is the exit status. */
int refuse_survivors(const struct survivors *found);

#endif
