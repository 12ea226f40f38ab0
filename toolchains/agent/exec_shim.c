/* A library for LD_PRELOAD: programs typed in a virtual board's shell go through emulate.c.
 *
 * Built for the host's C library as a shared object from this file and emulate.c:
 *     cc -shared -fPIC -O2 -std=c11 exec_shim.c emulate.c -o exec_shim.so -ldl
 *
 * Covered: execve, execv, execvp, execvpe, posix_spawn, posix_spawnp. The C library's own calls
 * between these functions do not pass through a preloaded name, so each is replaced by itself;
 * the search along PATH is done here only to know which file would run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulate.h"

extern char **environ;

typedef int (*spawn_function)(pid_t *, const char *, const posix_spawn_file_actions_t *,
                              const posix_spawnattr_t *, char *const[], char *const[]);

/* Found when the library is loaded: dlsym is not safe between vfork and exec. */
static exec_function real_execve;
static exec_function real_execvpe;
static spawn_function real_spawn;
static spawn_function real_spawnp;

__attribute__((constructor)) static void prepare(void)
{
    emulator_remember();
    *(void **)&real_execve = dlsym(RTLD_NEXT, "execve");
    *(void **)&real_execvpe = dlsym(RTLD_NEXT, "execvpe");
    *(void **)&real_spawn = dlsym(RTLD_NEXT, "posix_spawn");
    *(void **)&real_spawnp = dlsym(RTLD_NEXT, "posix_spawnp");
}

__attribute__((visibility("default"))) int execve(const char *path, char *const argv[],
                                                  char *const envp[])
{
    return emulated_exec_by(real_execve, path, argv, envp);
}

__attribute__((visibility("default"))) int execv(const char *path, char *const argv[])
{
    return emulated_exec_by(real_execve, path, argv, environ);
}

__attribute__((visibility("default"))) int execvpe(const char *file, char *const argv[],
                                                   char *const envp[])
{
    char path[PATH_MAX];
    if (find_program(file, getenv("PATH"), path, sizeof path) && emulator_for(path, envp))
        return emulated_exec_by(real_execve, path, argv, envp);
    return real_execvpe(file, argv, envp);
}

__attribute__((visibility("default"))) int execvp(const char *file, char *const argv[])
{
    return execvpe(file, argv, environ);
}

static int spawn_emulated(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const argv[],
                          char *const envp[], const char *emulator)
{
    if (access(path, X_OK) != 0)
        return errno;
    struct emulated emulated;
    if (!emulated_prepare(&emulated, emulator))
        return errno;
    size_t arguments = emulated_argv_size(&emulated, argv), variables = emulated_envp_size(envp);
    if (!arguments || !variables)
        return errno;
    char *new_argv[arguments], *new_envp[variables];
    emulated_argv(&emulated, path, argv, new_argv);
    emulated_envp(envp, new_envp);
    return real_spawn(pid, emulated.words[0], actions, attributes, new_argv, new_envp);
}

__attribute__((visibility("default"))) int
posix_spawn(pid_t *restrict pid, const char *restrict path,
            const posix_spawn_file_actions_t *restrict actions,
            const posix_spawnattr_t *restrict attributes, char *const argv[restrict],
            char *const envp[restrict])
{
    const char *emulator = emulator_for(path, envp);
    if (emulator)
        return spawn_emulated(pid, path, actions, attributes, argv, envp, emulator);
    return real_spawn(pid, path, actions, attributes, argv, envp);
}

__attribute__((visibility("default"))) int
posix_spawnp(pid_t *restrict pid, const char *restrict file,
             const posix_spawn_file_actions_t *restrict actions,
             const posix_spawnattr_t *restrict attributes, char *const argv[restrict],
             char *const envp[restrict])
{
    char path[PATH_MAX];
    const char *emulator = find_program(file, getenv("PATH"), path, sizeof path)
                               ? emulator_for(path, envp)
                               : NULL;
    if (emulator)
        return spawn_emulated(pid, path, actions, attributes, argv, envp, emulator);
    return real_spawnp(pid, file, actions, attributes, argv, envp);
}
